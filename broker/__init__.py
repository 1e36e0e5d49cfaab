"""The broker: one commit log, many queue indexes, consumer groups. No public API; run it with ``python -m broker``."""
