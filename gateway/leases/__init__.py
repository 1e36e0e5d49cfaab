"""The brokers' queues of topic filters, which a gateway holds for its sessions, alone or as a share."""
