"""The client's side of SCRAM-SHA-256, written from RFC 5802 by itself: nothing of ours is used."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

METHOD = "SCRAM-SHA-256"


class ScramClient:
    """One authentication. ``header``: the GS2 header; ``name``: as it stands in the message."""

    def __init__(self, name: str, password: str, nonce: str = "fyko+d2lbbFgONRv9qkxdawL", header: str = "n,,") -> None:
        self.password = password
        self.header = header
        self.nonce = nonce
        self.bare = f"n={name},r={nonce}"
        self.signature = b""
        self.iterations = 0
        self.salt = b""

    @property
    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def final(self, challenge: bytes | None) -> bytes:
        """The proof, for the server's first message."""
        assert challenge is not None
        nonce, salt, count = challenge.decode().split(",")
        assert nonce.startswith(f"r={self.nonce}"), "the server must add to our nonce"
        assert len(nonce) > len(self.nonce) + 16, "and enough"
        self.salt, self.iterations = b64decode(salt[2:]), int(count[2:])
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), self.salt, self.iterations)
        client_key = hmac.new(salted, b"Client Key", "sha256").digest()
        without_proof = f"c={b64encode(self.header.encode()).decode()},{nonce}"
        message = f"{self.bare},{challenge.decode()},{without_proof}".encode()
        signature = hmac.new(hashlib.sha256(client_key).digest(), message, "sha256").digest()
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        server_key = hmac.new(salted, b"Server Key", "sha256").digest()
        self.signature = hmac.new(server_key, message, "sha256").digest()
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def believes(self, data: bytes | None) -> bool:
        """Whether the server has proven itself too."""
        return data == b"v=" + b64encode(self.signature)
