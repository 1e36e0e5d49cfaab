"""From the queue of a filter to the sessions that want it: leases, live messages, history, retained messages."""
