"""What a session is: its subscriptions, what is in flight, and what of it is saved."""
