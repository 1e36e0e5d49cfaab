"""The name server: maps topics to brokers. It keeps leases in memory, and never talks to another name server."""
