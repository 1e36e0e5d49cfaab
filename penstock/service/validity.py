"""The ends of certificates and of lists of revoked ones in PEM, which Python's ``ssl`` gives for the peer's only.

Reads only the part of the DER that leads to the time (RFC 5280, 4.1 and 5.1). Pure and total: any other text has no
end.
"""

from __future__ import annotations

import re
from base64 import b64decode
from datetime import UTC, datetime
from typing import Final

_BLOCK: Final = re.compile(r"-----BEGIN (CERTIFICATE|X509 CRL)-----(.*?)-----END \1-----", re.DOTALL)
_UTC_TIME: Final = 0x17
_TIMES: Final = (_UTC_TIME, 0x18)
_VERSION: Final = 0xA0


def ends_at(text: str) -> float | None:
    """The earliest end, in seconds since 1970."""
    return min(ends_of(text), default=None)


def ends_of(text: str) -> list[float]:
    """The end of each, in seconds since 1970."""
    ends: list[float] = []
    for kind, body in _BLOCK.findall(text):
        try:
            [(_, whole)] = _values(b64decode(body))
            fields = [field for field in _values(_values(whole)[0][1]) if field[0] != _VERSION]
            if kind == "CERTIFICATE":  # serial number, algorithm, issuer, (not before, not after), ...
                ends.append(_time(*_values(fields[3][1])[1]))
            else:  # (version), algorithm, issuer, this update, (next update), ...
                ends += [_time(*field) for field in fields[:5] if field[0] in _TIMES][1:]
        except (ValueError, IndexError):
            continue
    return ends


def _values(data: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each value in a row."""
    found = []
    at = 0
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size > 0x80:  # number of bytes of the length
            more = size - 0x80
            size, at = int.from_bytes(data[at : at + more]), at + more
        if at + size > len(data):
            raise ValueError("it is cut off")
        found.append((tag, data[at : at + size]))
        at += size
    return found


def _time(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
