"""A message's body as a person can read it: text, JSON, msgpack, CBOR or hex. Pure.

Nothing in a body is executed: the decoders make plain values alone, bounded in size and depth.
"""

from __future__ import annotations

import io
import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import cbor2
import msgpack

SHOWN_BYTES_MAX: Final = 64 * 1024
"""Maximum bytes of a body that are shown, and characters of its text."""
DEPTH_MAX: Final = 64
FORMS: Final = ("auto", "text", "json", "msgpack", "cbor", "hex")
SUMMARY_LENGTH: Final = 120
_HEX_WIDTH: Final = 16


class Unreadable(ValueError):
    """A body is not of the form that was asked for. The text says why."""


def shown(body: bytes, form: str = "auto") -> tuple[str, str]:
    """The form that a body is shown in, and its text. Raises ``Unreadable`` for a form that it does not have."""
    if form == "auto":
        for one in ("json", "text", "msgpack", "cbor"):
            try:
                if one in ("msgpack", "cbor") and not _is_structured(one, body):
                    continue
                return one, _READERS[one](body)
            except Unreadable:
                continue
        form = "hex"
    if form not in _READERS:
        raise Unreadable(f"{form!r} is no form: there are {', '.join(FORMS)}")
    return form, _READERS[form](body)


def summary(body: bytes) -> str:
    """A body in a few words."""
    try:
        text = body[: SUMMARY_LENGTH * 4].decode()
    except UnicodeDecodeError as error:
        if error.start < SUMMARY_LENGTH * 4 - 4:
            return _cut(body[: SUMMARY_LENGTH // 3].hex(" "), len(body) > SUMMARY_LENGTH // 3)
        text = body[: error.start].decode()
    text = "".join([one if one.isprintable() else "·" for one in text])
    return _cut(text[:SUMMARY_LENGTH], len(text) > SUMMARY_LENGTH)


def _cut(text: str, is_cut: bool) -> str:
    return text + " …" if is_cut else text


def _text(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is no text: byte {error.start} is not UTF-8") from None
    if any(not one.isprintable() and one not in "\t\n\r" for one in text[:1000]):
        raise Unreadable("it is no text: it has control characters")
    return _bounded(text)


def _json(body: bytes) -> str:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is no JSON: {error}") from None
    return _written(value)


def _msgpack(body: bytes) -> str:
    try:
        value = msgpack.unpackb(body, strict_map_key=False, timestamp=0)
    except (ValueError, msgpack.UnpackException, RecursionError, OverflowError) as error:
        raise Unreadable(f"it is no msgpack: {str(error) or type(error).__name__}") from None
    return _written(value)


def _cbor(body: bytes) -> str:
    stream = io.BytesIO(body)
    try:
        value = cbor2.CBORDecoder(stream, tag_hook=lambda _decoder, tag: str(tag)).decode()
    except (cbor2.CBORDecodeError, ValueError, RecursionError, OverflowError, TypeError) as error:
        raise Unreadable(f"it is no CBOR: {str(error)[:200] or type(error).__name__}") from None
    if stream.tell() != len(body):
        raise Unreadable(f"it is no CBOR: {len(body) - stream.tell()} bytes follow its value")
    return _written(value)


def _hex(body: bytes) -> str:
    cut = body[:SHOWN_BYTES_MAX]
    lines = []
    for at in range(0, len(cut), _HEX_WIDTH):
        part = cut[at : at + _HEX_WIDTH]
        plain = "".join([chr(one) if 32 <= one < 127 else "." for one in part])
        lines.append(f"{at:08x}  {part.hex(' '):<{_HEX_WIDTH * 3}} {plain}")
    return "\n".join(lines) + _rest(len(body))


_READERS: Final[Mapping[str, Callable[[bytes], str]]] = MappingProxyType(
    {"text": _text, "json": _json, "msgpack": _msgpack, "cbor": _cbor, "hex": _hex}
)


def _is_structured(form: str, body: bytes) -> bool:
    """Whether bytes that may be anything are taken for a map or a list: any byte is some value of these forms."""
    first = body[0] if body else 0
    if form == "msgpack":
        return 0x80 <= first <= 0x9F or 0xDC <= first <= 0xDF
    return 0x80 <= first <= 0xBF


def _written(value: Any) -> str:
    try:
        return _bounded(json.dumps(_plain(value, DEPTH_MAX), indent=2, ensure_ascii=False))
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None


def _plain(value: Any, depth: int) -> Any:
    """The value in JSON's kinds, other kinds as text."""
    if depth == 0:
        raise Unreadable(f"it is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, Mapping):
        return {one if isinstance(one, str) else _as_key(one): _plain(inner, depth - 1) for one, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one, depth - 1) for one in value]
    if isinstance(value, bytes):
        return f"base64:{b64encode(value).decode()}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def _as_key(key: object) -> str:
    return key.hex(" ") if isinstance(key, bytes) else str(key)


def _bounded(text: str) -> str:
    return text if len(text) <= SHOWN_BYTES_MAX else text[:SHOWN_BYTES_MAX] + "\n… the rest is not shown"


def _rest(size: int) -> str:
    return f"\n… {size - SHOWN_BYTES_MAX:,} further bytes" if size > SHOWN_BYTES_MAX else ""
