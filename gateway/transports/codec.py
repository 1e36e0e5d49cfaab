"""The seam between the bytes of a socket and the MQTT bytes in them: one protocol, or several in one.

A ``Codec`` is pure: bytes in, bytes out. It answers by itself where its protocol asks for that (a handshake, a pong);
the caller takes its bytes with ``output`` after every ``decode``. It never raises: ``over`` says that nothing more will
be decoded, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Codec(Protocol):
    """One connection's transport, from the server's side.

    Attributes:
        over: why nothing more comes from the other side, empty as long as something may.
        address: where the client is, if that is another address than the socket's.
        certificate: the name in the client's certificate, if it showed a valid one.
        page: the web page that opened it, if that is of another machine and the operator has not named it.
    """

    @property
    def over(self) -> str: ...

    @property
    def address(self) -> str | None: ...

    @property
    def certificate(self) -> str | None: ...

    @property
    def page(self) -> str: ...

    def decode(self, data: bytes) -> bytes:
        """Decodes bytes from the socket; empty if there is no payload yet, or no more."""
        ...

    def output(self) -> bytes:
        """The codec's own output. It precedes later encoded bytes."""
        ...

    def encode(self, data: bytes) -> bytes:
        """Encodes bytes for the other side. Only for a client that has sent some itself."""
        ...

    def close(self) -> bytes:
        """The farewell. Nothing is encoded after it."""
        ...


class Stack:
    """Codecs inside each other, the outermost (next to the socket) first."""

    __slots__ = ("_codecs",)

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._codecs = tuple(codecs)

    @property
    def over(self) -> str:
        return next((one.over for one in self._codecs if one.over), "")

    @property
    def address(self) -> str | None:
        return next((one.address for one in self._codecs if one.address is not None), None)

    @property
    def certificate(self) -> str | None:
        return next((one.certificate for one in self._codecs if one.certificate is not None), None)

    @property
    def page(self) -> str:
        return next((one.page for one in self._codecs if one.page), "")

    def decode(self, data: bytes) -> bytes:
        for one in self._codecs:
            if data:
                data = one.decode(data)
        return data

    def output(self) -> bytes:
        out = b""
        for one in reversed(self._codecs):
            own = one.output()
            out = own + (one.encode(out) if out else b"")
        return out

    def encode(self, data: bytes) -> bytes:
        for one in reversed(self._codecs):
            data = one.encode(data)
        return data

    def close(self) -> bytes:
        out = b""
        for one in reversed(self._codecs):
            out = (one.encode(out) if out else b"") + one.close()
        return out
