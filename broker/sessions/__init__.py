"""MQTT sessions at their home, with their QoS 2 exchanges and the epochs of gateways."""
