"""The PROXY protocol, version 2: a load balancer says in front of a connection where its client is.

``parse_header`` reads the header strictly: the signature to the byte, version 2, TCP over IPv4 or IPv6, all lengths
right, the extensions (TLVs) inside their bounds. A client of a Unix socket of the balancer has no address that limits
or rules could use: it counts as the balancer's own, as one of an unspecified family does. Datagrams and version 1, the
text form, are refused. Whether the sender may be believed is decided before (``gateway/connections/listeners.py``).
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final, NamedTuple

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
HEAD_BYTES: Final = 16
BODY_BYTES_MAX: Final = 4096
LOCAL: Final = 0x20
PROXIED: Final = 0x21
_HEAD: Final = struct.Struct(">12sBBH")
# Address family and protocol -> bytes of the two addresses and ports.
_UNSPECIFIED: Final = 0x00
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_UNIX: Final = 0x31
_ADDRESS_BYTES: Final = {_UNSPECIFIED: 0, _TCP4: 12, _TCP6: 36, _UNIX: 216}


class Header(NamedTuple):
    """Content of a header: the client's address (``None`` if it has none: the socket's counts), and its length."""

    address: str | None
    length: int


def parse_header(data: bytes) -> Header | None:
    """The header that the bytes begin with, ``None`` if more are needed. Raises ``ValueError`` for anything else."""
    if data[: len(SIGNATURE)] != SIGNATURE[: len(data)]:
        raise ValueError("no header of the PROXY protocol, version 2")
    if len(data) < HEAD_BYTES:
        return None
    _, command, family, size = _HEAD.unpack_from(data)
    if command not in (LOCAL, PROXIED):
        raise ValueError(f"the PROXY command 0x{command:02x} is unknown")
    if size > BODY_BYTES_MAX:
        raise ValueError(f"a PROXY header of {size} bytes")
    if command == PROXIED and family not in _ADDRESS_BYTES:
        raise ValueError(f"the PROXY family 0x{family:02x} is no stream")
    if len(data) < HEAD_BYTES + size:
        return None
    if command == LOCAL:  # whatever else it has is to be passed over
        return Header(None, HEAD_BYTES + size)
    body = data[HEAD_BYTES : HEAD_BYTES + size]
    at = _ADDRESS_BYTES[family]
    if size < at:
        raise ValueError("the addresses in the PROXY header are cut")
    while at < size:
        at += 3 + int.from_bytes(body[at + 1 : at + 3], "big")
        if at > size:
            raise ValueError("an extension in the PROXY header is cut")
    return Header(_address(family, body), HEAD_BYTES + size)


def _address(family: int, body: bytes) -> str | None:
    if family == _TCP4:
        return str(ipaddress.IPv4Address(body[:4]))
    if family == _TCP6:
        return str(ipaddress.IPv6Address(body[:16]))
    return None


class ProxyCodec:
    """Takes the header off the beginning of a connection; the rest passes as it is."""

    __slots__ = ("_head", "_is_read", "address", "certificate", "over", "page")

    def __init__(self) -> None:
        self._head = b""
        self._is_read = False
        self.over = ""
        self.address: str | None = None
        self.certificate: str | None = None
        self.page = ""

    def decode(self, data: bytes) -> bytes:
        if self._is_read or self.over:
            return b"" if self.over else data
        self._head += data
        try:
            header = parse_header(self._head)
        except ValueError as error:
            self.over = str(error)
            return b""
        if header is None:
            return b""
        self._is_read = True
        self.address = header.address
        rest, self._head = self._head[header.length :], b""
        return rest

    def output(self) -> bytes:
        return b""

    def encode(self, data: bytes) -> bytes:
        return data

    def close(self) -> bytes:
        return b""
