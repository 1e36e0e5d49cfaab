"""Producers whose messages are stored once, however often they are sent: which of their numbers the log has."""
