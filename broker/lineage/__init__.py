"""Who a log is and who leads it: its identity, its epochs."""
