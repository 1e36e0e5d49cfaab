"""Frames as the first peers sent them: a header without the fields that came later."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import msgpack

from penstock.protocol.requests.request import Request, Result
from penstock.protocol.wire import RawFrame, decode_request, decode_result


def asked(code: int, *fields: Any, body: bytes = b"") -> Request:
    """The request that a frame with these header fields makes today."""
    return decode_request(RawFrame(code, 1, msgpack.unpackb(msgpack.packb(fields), use_list=False), memoryview(body)))


def answered(to: type[Request], *fields: Any, body: bytes = b"") -> Result:
    """The reply that a frame with these header fields makes today, to a request of type ``to``."""
    return decode_result(RawFrame(0, 1, msgpack.unpackb(msgpack.packb(fields), use_list=False), memoryview(body)), to)


def codes(theme: ModuleType) -> dict[int, str]:
    """The requests that a module defines, by code. Older clients and stored captures depend on these."""
    return {
        value.code: name
        for name, value in vars(theme).items()
        if isinstance(value, type) and issubclass(value, Request) and value.__module__ == theme.__name__
    }
