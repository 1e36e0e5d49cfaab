"""The store: one commit log, many queue indexes, and the recovery that makes them agree. Synchronous; never waits on
a network.

``message_store.MessageStore`` is the face; ``disk.Disk`` is the only door to files.
"""
