"""The benchmark of the native path: what programs send and consume with ``penstock``'s own client."""
