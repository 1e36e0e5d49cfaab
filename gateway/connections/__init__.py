"""One connection: accepted, let in, served packet by packet, let go; with its lease, takeovers and will."""
