"""Messages on their way to subscribers: as they come from the broker's queues, and as packets."""
