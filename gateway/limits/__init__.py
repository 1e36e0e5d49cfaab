"""Limits and rates of one client, and the reason codes for clients that exceed them."""
