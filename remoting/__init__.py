"""The remoting front: it serves unmodified RocketMQ clients from the broker's queues."""
