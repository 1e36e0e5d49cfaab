"""One connection: accepted, let in, served packet by packet, and let go."""
