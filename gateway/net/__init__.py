"""The loop: sockets that are ready, one round of work for all of them, and deadlines."""
