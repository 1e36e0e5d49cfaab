"""Transactional messages: halves that sleep until their producer says what becomes of them."""
