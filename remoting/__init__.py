"""The remoting front: RocketMQ's own clients, unmodified, on the same queues as everyone else."""
