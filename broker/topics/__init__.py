"""Topics: their fold and their requests."""
