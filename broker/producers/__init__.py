"""Idempotent producers: the numbers of their messages that the log has, so that each is stored once."""
