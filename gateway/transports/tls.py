"""TLS for one connection: the records of the socket on one side, the bytes that they protect on the other.

The handshake and the records are OpenSSL's; this holds its two buffers and turns its exceptions into ``over``. A
handshake that fails leaves its alert in ``output``, so that the client learns why. What a context allows (versions,
certificates, no renegotiation) is ``gateway/transports/certificates.py``'s business.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from typing import Any, Final

RECORDS_BYTES: Final = 64 * 1024
_CLOSED: Final = "the client closed"


class TlsCodec:
    """The server's side of one TLS connection."""

    __slots__ = ("_incoming", "_is_open", "_outgoing", "_tls", "address", "certificate", "over")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False
        self.over = ""
        self.address: str | None = None
        self.certificate: str | None = None

    def decode(self, data: bytes) -> bytes:
        if self.over:
            return b""
        self._incoming.write(data)
        parts: list[bytes] = []
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
                self.certificate = name_of(self._tls.getpeercert())
            while part := self._tls.read(RECORDS_BYTES):
                parts.append(part)
            self.over = _CLOSED
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.over = error.reason or str(error) or "TLS"
        return b"".join(parts)

    def output(self) -> bytes:
        return self._outgoing.read()

    def encode(self, data: bytes) -> bytes:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError as error:  # the connection is no longer fit for anything
            self.over = self.over or error.reason or "TLS"
        return self._outgoing.read()

    def close(self) -> bytes:
        if self._is_open:
            with contextlib.suppress(ssl.SSLError):  # the other side has not said its farewell, and need not
                self._tls.unwrap()
        return self._outgoing.read()


def name_of(certificate: Mapping[str, Any] | None) -> str | None:
    """Whom a certificate is for: its common name, else its first DNS name, ``None`` if it has neither."""
    if not certificate:
        return None
    for relative in certificate.get("subject", ()):
        for field, value in relative:
            if field == "commonName":
                return str(value)
    return next((str(value) for field, value in certificate.get("subjectAltName", ()) if field == "DNS"), None)
