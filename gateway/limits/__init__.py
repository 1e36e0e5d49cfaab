"""What one client may take, how fast, and what it is told when it wants more."""
