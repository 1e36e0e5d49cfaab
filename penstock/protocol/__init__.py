"""What travels between clients and services: messages, requests and their bytes."""
