"""Pure mapping between MQTT names and filters on one side, broker topics and queues on the other. Standard library
only."""
