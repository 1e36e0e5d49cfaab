"""Publishing: from a client's PUBLISH to the broker's answer."""
