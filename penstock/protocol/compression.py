"""Compressed bodies, as RocketMQ marks and makes them: a frame of zstd or LZ4, or a zlib stream, named in a record's
system flag. Producers compress, readers decompress, brokers pass bodies on as they are.

Undoing is total and bounded: any bytes give a body of at most 4 MiB or ``InvalidMessage``, and no more than that and a
window of 8 MiB is ever held for it.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Any, Final, Literal

from penstock.errors import InvalidMessage, InvalidRequest

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of a body, as a program has it."""
Compression = Literal["", "zstd", "lz4", "zlib"]
SYSTEM_FLAG_AT: Final = 36
"""Of a record: four bytes."""
COMPRESSED: Final = 0x1
KIND: Final = 0x700
"""The bits of the system flag that say how; none of them: zlib, as RocketMQ's first versions."""
LZ4: Final = 0x100
ZSTD: Final = 0x200
ZLIB: Final = 0x300
COMPRESS_ABOVE: Final = 4096
"""Smaller bodies stay as they are."""
_WINDOW_LOG_MAX: Final = 23
_FLAG_OF: Final = {"zstd": COMPRESSED | ZSTD, "lz4": COMPRESSED | LZ4, "zlib": COMPRESSED | ZLIB}


def system_flag_of(compression: str) -> int:
    """The system flag of bodies that are compressed so; 0 for none. Raises ``InvalidRequest`` for an unknown one."""
    if compression == "":
        return 0
    if not isinstance(compression, str) or compression not in _FLAG_OF:
        raise InvalidRequest(f"compression is zstd, lz4 or zlib, not {compression!r}")
    return _FLAG_OF[compression]


def compress(body: bytes, system_flag: int) -> bytes:
    """The body as it is stored under a system flag."""
    kind = system_flag & KIND
    if kind == ZSTD:
        packed: bytes = _zstd().compress(body)
        return packed
    if kind == LZ4:
        framed: bytes = _lz4().compress(body)
        return framed
    return zlib.compress(body)


def decompress(body: bytes, system_flag: int) -> bytes:
    """The body that was compressed. Raises ``InvalidMessage`` for what is none, or would have more than a body may."""
    kind = system_flag & KIND
    if kind == ZSTD:
        limit = {_zstd().DecompressionParameter.window_log_max: _WINDOW_LOG_MAX}
        return _undone("zstd", body, lambda: _zstd().ZstdDecompressor(options=limit))
    if kind == LZ4:
        return _undone("lz4", body, lambda: _lz4().LZ4FrameDecompressor())
    if kind not in (ZLIB, 0):
        raise InvalidMessage(f"a body is compressed in a way that is not known: system flag {system_flag:#x}")
    return _undone("zlib", body, zlib.decompressobj)


def _undone(name: str, body: bytes, decompressor: Callable[[], Any]) -> bytes:
    made = decompressor()
    try:
        plain: bytes = made.decompress(body, BODY_BYTES_MAX + 1)
    except Exception as error:  # each library has its own
        raise InvalidMessage(f"a body is no {name}: {error}") from None
    if len(plain) > BODY_BYTES_MAX:
        raise InvalidMessage(f"a body of {len(body)} bytes of {name} has more than {BODY_BYTES_MAX} bytes")
    if not made.eof or made.unused_data:
        raise InvalidMessage(f"a body is no {name}: it ends too early, or goes on behind its end")
    return plain


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        try:
            from backports import zstd
        except ImportError:
            raise _missing("backports.zstd") from None
    return zstd


def _lz4() -> Any:
    try:
        from lz4 import frame
    except ImportError:
        raise _missing("lz4") from None
    return frame


def _missing(package: str) -> InvalidRequest:
    return InvalidRequest(f"the package {package} is not installed", hint=f"pip install {package}")
