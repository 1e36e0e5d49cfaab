"""Copies of a broker's log on several nodes."""
