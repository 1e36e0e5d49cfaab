"""Shared subscriptions: leases of messages, and the fold of what is settled."""
