"""MQTT sessions at their home, and the QoS 2 exchanges and gateway lives that belong to them."""
