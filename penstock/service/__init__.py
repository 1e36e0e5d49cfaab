"""What every service runs on: connections, metrics, settings, readiness. Clients never import it."""
