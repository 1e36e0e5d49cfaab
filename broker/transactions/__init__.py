"""Transactional messages: halves that wait for their producer's outcome."""
