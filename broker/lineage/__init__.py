"""The lineage of a log: its identity, its epochs, its owner."""
