"""Delivery: from a filter's queue to its subscribers: leases, live messages, history, retained messages."""
