"""Messages: appends, pulls, look-ups, and the fold of retained values."""
