"""MQTT sessions at their home, and the QoS 2 exchanges and gateway epochs that belong to them."""
