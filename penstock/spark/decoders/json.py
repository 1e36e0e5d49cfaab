"""JSON payloads, by orjson: strict, and safe with any bytes. (pyarrow's reader ends the process at a lone ``null``.)"""

from __future__ import annotations

from typing import Any

import orjson

from penstock.spark.decoders.fitting import Undecodable


def value_of(payload: bytes) -> Any:
    """The value of a JSON text. Raises ``Undecodable``."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise Undecodable(f"no JSON: {error}") from None
