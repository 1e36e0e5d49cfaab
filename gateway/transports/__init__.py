"""How bytes come to the gateway: sockets, TLS, WebSocket, the headers of load balancers."""
