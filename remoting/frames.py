"""Commands of the remoting protocol as bytes: a length, a header in JSON or in binary, a body.

docs/formats/remoting.md is the page. Decoding is total: any bytes give commands or a ``ProtocolError``, after which the
connection ends.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import ProtocolError

FRAME_BYTES_MAX: Final = 16 << 20
RESPONSE: Final = 1
ONE_WAY: Final = 2
JSON: Final = 0
BINARY: Final = 1
_LENGTHS: Final = struct.Struct(">II")
_HEAD: Final = struct.Struct(">hBhii")  # code, language, version, opaque, flag
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_LANGUAGES: Final = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST"),
    "NODE_JS",
)
_INT_MAX: Final = 0x7FFF_FFFF
_as_json: Final = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(slots=True)
class Command:
    """A request, an answer or a notice.

    Attributes:
        code: the number of the request or of the answer's result (``codes``).
        opaque: the asker's number, which the answer repeats.
        fields: named values, all as text.
        flag: ``RESPONSE`` and ``ONE_WAY``.
        version: ordinal of the sender's version.
        serialization: ``JSON`` or ``BINARY``; the answer has that of its request.
    """

    code: int
    opaque: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    flag: int = 0
    remark: str = ""
    language: str = "JAVA"
    version: int = 0
    serialization: int = JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & ONE_WAY)

    def answer(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", remark: str = "") -> Command:
        """The answer to this request."""
        return Command(
            code, self.opaque, fields or {}, body, RESPONSE, remark, "OTHER", self.version, self.serialization
        )

    def text(self, name: str, default: str = "") -> str:
        """A field that may be missing."""
        return self.fields.get(name, default)

    def number(self, name: str, default: int | None = None) -> int:
        """A field that is a whole number. Raises ``ProtocolError`` where it is none, or missing without a default."""
        value = self.fields.get(name)
        if value is None or value == "":
            if default is None:
                raise ProtocolError(f"the field {name} is missing")
            return default
        try:
            number = int(value)
        except ValueError:
            raise ProtocolError(f"the field {name} is no number") from None
        if not -(1 << 63) <= number < 1 << 63:
            raise ProtocolError(f"the field {name} is no number of 64 bits")
        return number

    def flagged(self, name: str) -> bool:
        """A field that is true or false, as clients in several languages write it."""
        return self.fields.get(name, "").lower() in ("true", "1")


class FrameReader:
    """Takes bytes as they come and gives whole commands."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes | bytearray) -> list[Command]:
        """The commands that are whole now. Raises ``ProtocolError``."""
        self._data += data
        commands: list[Command] = []
        at, held = 0, self._data
        while len(held) - at >= _LENGTHS.size:
            length, word = _LENGTHS.unpack_from(held, at)
            if not 4 <= length <= FRAME_BYTES_MAX:
                raise ProtocolError(f"a frame of {length} bytes: at most {FRAME_BYTES_MAX} are read")
            end = at + 4 + length
            if len(held) < end:
                break
            head_end = at + _LENGTHS.size + (word & 0xFF_FFFF)
            if head_end > end:
                raise ProtocolError("a header longer than its frame")
            head = bytes(held[at + _LENGTHS.size : head_end])
            commands.append(_decode(word >> 24, head, bytes(held[head_end:end])))
            at = end
        del held[:at]
        return commands


def _decode(serialization: int, head: bytes, body: bytes) -> Command:
    if serialization == JSON:
        return _from_json(head, body)
    if serialization == BINARY:
        return _from_binary(head, body)
    raise ProtocolError(f"a header of serialization {serialization}")


def _from_json(head: bytes, body: bytes) -> Command:
    try:
        row: Any = json.loads(head)
        get = row.get
        fields = _fields_of(get("extFields"), b"\\ud" in head or b"\\uD" in head)
        numbers = [int(get("code") or 0), int(get("opaque") or 0), int(get("flag") or 0), int(get("version") or 0)]
        remark, language = _text(get("remark") or ""), _text(get("language") or "")
    except (ValueError, AttributeError, TypeError, RecursionError, OverflowError):
        raise ProtocolError("a header that is no JSON object of a command") from None
    if max(numbers) > _INT_MAX or min(numbers) < -_INT_MAX - 1:
        raise ProtocolError("a header with a number of more than 32 bits")
    code, opaque, flag, version = numbers
    return Command(code, opaque, fields, body, flag, remark, language, version)


def _fields_of(found: Any, may_have_surrogates: bool) -> dict[str, str]:
    """The fields of a header as text; a surrogate can only have come as an escape."""
    if not found:
        return {}
    if may_have_surrogates:
        return {_text(name): _text(value) for name, value in found.items() if value is not None}
    return {name: value if type(value) is str else _text(value) for name, value in found.items() if value is not None}


def _text(value: Any) -> str:
    """A value as clients in Java would have written it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise ValueError
    text = str(value)
    text.encode()  # lone surrogates are no text
    return text


def _from_binary(head: bytes, body: bytes) -> Command:
    try:
        code, language, version, opaque, flag = _HEAD.unpack_from(head)
        remark, at = _take(head, _HEAD.size, _U32)
        packed, _ = _take(head, at, _U32)
        fields: dict[str, str] = {}
        at = 0
        while at < len(packed):
            name, at = _take(packed, at, _U16)
            value, at = _take(packed, at, _U32)
            fields[name.decode()] = value.decode()
        spoken = _LANGUAGES[language] if language < len(_LANGUAGES) else "OTHER"
        return Command(code, opaque, fields, body, flag, remark.decode(), spoken, version, BINARY)
    except (struct.error, ValueError, UnicodeDecodeError):
        raise ProtocolError("a binary header that is not whole") from None


def _take(data: bytes, at: int, length: struct.Struct) -> tuple[bytes, int]:
    (size,) = length.unpack_from(data, at)
    at += length.size
    if len(data) - at < size:
        raise ValueError
    return data[at : at + size], at + size


def encode(command: Command) -> bytes:
    """The bytes of a command, length included."""
    head = _to_binary(command) if command.serialization == BINARY else _to_json(command)
    word = command.serialization << 24 | len(head)
    return _LENGTHS.pack(4 + len(head) + len(command.body), word) + head + command.body


def _to_json(command: Command) -> bytes:
    row: dict[str, Any] = {
        "code": command.code,
        "language": command.language,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        "serializeTypeCurrentRPC": "JSON",
    }
    if command.remark:
        row["remark"] = command.remark
    if command.fields:
        row["extFields"] = command.fields
    return _as_json(row).encode()


def _to_binary(command: Command) -> bytes:
    remark = command.remark.encode()
    pairs = [(name.encode(), value.encode()) for name, value in command.fields.items()]
    packed = b"".join([_U16.pack(len(name)) + name + _U32.pack(len(value)) + value for name, value in pairs])
    language = _LANGUAGES.index(command.language)
    head = _HEAD.pack(command.code, language, command.version, command.opaque, command.flag)
    return head + _U32.pack(len(remark)) + remark + _U32.pack(len(packed)) + packed
