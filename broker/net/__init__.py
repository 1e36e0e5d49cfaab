"""What serves the broker's requests: connections, dispatch, the flusher, registration at name servers."""
