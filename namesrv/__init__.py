"""The name server: who has which queue. It keeps leases in memory, and never talks to another name server."""
