"""MessagePack payloads. Times of its extension type are times; other extension types are refused."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from penstock.spark.decoders.fitting import Undecodable

_AS_TIMES: Final = 3


def value_of(payload: bytes) -> Any:
    """The one value of a payload. Raises ``Undecodable``."""
    import msgpack

    try:
        return msgpack.unpackb(payload, timestamp=_AS_TIMES, strict_map_key=False, ext_hook=_refused)
    except Undecodable:
        raise
    except msgpack.ExtraData:
        raise Undecodable("no MessagePack: bytes follow the value") from None
    except Exception as error:
        raise Undecodable(f"no MessagePack: {str(error) or type(error).__name__}") from None


def _refused(code: int, data: bytes) -> NoReturn:
    raise Undecodable(f"an extension of MessagePack, {code}")
