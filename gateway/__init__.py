"""The MQTT gateway: connections, sessions, and what goes between devices and the stored queues."""
