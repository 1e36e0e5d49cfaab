"""An MQTT session: its subscriptions, its messages in flight, and its saved state."""
