"""Login mechanisms of the native ports, and the proofs of services that know the cluster's key.

The exchange is the request ``Login``, as often as the mechanism takes (docs/formats/wire.md):

    SCRAM-SHA-256   a user and a password that is never sent, RFC 5802 and RFC 7677
    TOKEN           a JSON Web Token; in one step, and only where the line is private
    CLUSTER-KEY     a service of the cluster: each side proves to the other that it has the key

A connection that has shown a certificate, which TLS has checked, needs none: its name is the user's.
With CLUSTER-KEY the client sends its name and a nonce, the server answers with a nonce of its own, the client sends a
proof over both and its name, and the server one of its own. No proof can be used again, or by the other side. Pure.
"""

from __future__ import annotations

import hmac
from typing import Final

SCRAM: Final = "SCRAM-SHA-256"
TOKEN: Final = "TOKEN"
CLUSTER_KEY: Final = "CLUSTER-KEY"
MECHANISMS: Final = (SCRAM, TOKEN, CLUSTER_KEY)

NONCE_BYTES: Final = 32
NAME_BYTES_MAX: Final = 255
_SERVICE: Final = b"penstock service 1"
_SERVER: Final = b"penstock server 1"


def service_proof(key: bytes, client_nonce: bytes, server_nonce: bytes, name: str) -> bytes:
    """A service's proof that it has the key."""
    return _mac(key, _SERVICE, client_nonce, server_nonce, name.encode())


def server_proof(key: bytes, client_nonce: bytes, server_nonce: bytes, name: str) -> bytes:
    """The server's proof to a service of that name."""
    return _mac(key, _SERVER, client_nonce, server_nonce, name.encode())


def _mac(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"".join([len(part).to_bytes(4, "big") + part for part in parts]), "sha256")
