"""TLS for one connection: the records of the socket on one side, the bytes that they protect on the other.

The handshake and the records are OpenSSL's; this holds its two buffers and turns its exceptions into ``over``. A
handshake that fails leaves its alert in ``output``, so that the client learns why. What a context allows (versions,
certificates, no renegotiation) is ``penstock/service/certificates.py``'s business.

A client that resumes a session (RFC 8446, 2.2) shows its certificate no more: OpenSSL takes it as it was looked at
then, and hands out the next ticket. So whether it still counts by now is looked at here, or it would never end.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from typing import Any, Final

from penstock.service.certificates import name_of

RECORDS_BYTES: Final = 64 * 1024
"""Bytes that are encoded or decoded at a time: a buffer of OpenSSL never shrinks."""
_CLOSED: Final = "the client closed"
_CONNECT: Final = b"\x10"
_NO_TLS: Final = "; the client speaks MQTT without TLS"
_ENDED: Final = "the client's certificate has ended"
_EARLY: Final = "the client's certificate is not valid yet"


class TlsCodec:
    """The server's side of one TLS connection. ``now_s``: when it came, in seconds since 1970."""

    __slots__ = (
        "_has_begun",
        "_incoming",
        "_is_open",
        "_now_s",
        "_outgoing",
        "_speaks_mqtt",
        "_tls",
        "address",
        "certificate",
        "over",
        "page",
    )

    def __init__(self, context: ssl.SSLContext, now_s: float = 0.0) -> None:
        self._now_s = now_s
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = self._has_begun = self._speaks_mqtt = False
        self.over = ""
        self.address: str | None = None
        self.certificate: str | None = None
        self.page = ""

    def decode(self, data: bytes) -> bytes:
        if self.over:
            return b""
        if not self._has_begun:
            self._has_begun, self._speaks_mqtt = True, data[:1] == _CONNECT
        self._incoming.write(data)
        parts: list[bytes] = []
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
                if not self._take_certificate(self._tls.getpeercert()):
                    return b""
            while part := self._tls.read(RECORDS_BYTES):
                parts.append(part)
            self.over = _CLOSED
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.over = error.reason or str(error) or "TLS"
            if self._speaks_mqtt:
                self.over += _NO_TLS
        return b"".join(parts)

    def _take_certificate(self, shown: Mapping[str, Any] | None) -> bool:
        """Whom the client's certificate is for, if it showed one; whether that counts now. OpenSSL went by the
        machine's clock, which may have jumped, or did not look because a session was resumed."""
        if shown and ssl.cert_time_to_seconds(shown["notAfter"]) < self._now_s:
            self.over = _ENDED
            return False
        if shown and 0 < self._now_s < ssl.cert_time_to_seconds(shown["notBefore"]):
            self.over = _EARLY
            return False
        self.certificate = name_of(shown)
        return True

    def output(self) -> bytes:
        return self._outgoing.read()

    def encode(self, data: bytes) -> bytes:
        rest, records = memoryview(data), [self._outgoing.read()]
        try:
            while rest:
                rest = rest[self._tls.write(rest[:RECORDS_BYTES]) :]
                records.append(self._outgoing.read())
        except ssl.SSLError as error:  # the connection is no longer fit for anything
            self.over = self.over or error.reason or "TLS"
            records.append(self._outgoing.read())
        return b"".join(records)

    def close(self) -> bytes:
        if self._is_open:
            with contextlib.suppress(ssl.SSLError):  # the other side has not said its farewell, and need not
                self._tls.unwrap()
        return self._outgoing.read()
