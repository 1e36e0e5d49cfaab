"""Open topic filters and their queues."""
