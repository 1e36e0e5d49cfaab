"""Sessions with their brokers: opened, taken over, saved, resumed, ended, with their wills."""
