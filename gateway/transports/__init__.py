"""Transports: sockets, TLS, WebSocket, the headers of load balancers."""
