"""The service side of the broker: connections, dispatch, the flusher, registration at name servers."""
