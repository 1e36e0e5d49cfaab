"""MQTT as bytes and rules: packets, their codec, and the protocol state of one connection. Pure."""
