"""CBOR payloads. Tags that mean times and large numbers are read; those that refer to other values are refused."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from penstock.spark.decoders.fitting import Undecodable


def value_of(payload: bytes) -> Any:
    """The one value of a payload. Raises ``Undecodable``."""
    import cbor2

    stream = BytesIO(payload)
    try:
        value = cbor2.CBORDecoder(stream).decode()
    except Exception as error:
        raise Undecodable(f"no CBOR: {error}") from None
    if stream.tell() != len(payload):
        raise Undecodable("no CBOR: bytes follow the value")
    return value
