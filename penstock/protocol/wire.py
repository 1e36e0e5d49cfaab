"""The frames that carry requests and replies. docs/formats/wire.md is the page of this format.

A wire frame is ``length u32 | header length u32 | header | body``: the length counts all that follows it, the header
is a msgpack array, the body is raw bytes. A request's header is ``[code, id, field, ...]``; a reply's is ``[0, id,
field, ...]``; an error's is ``[-1, id, error code, message, hint, unknown?]``. A reply's type follows from the request
that bears its id. Fields come in the order of the dataclass; the field called ``body`` travels as the frame's body.
Missing trailing fields take their defaults and extra ones are ignored, so that both sides may grow.

Decoding is total: any bytes give requests, replies or a ``ProtocolError``, and never an allocation beyond the frame
limit. Nothing here waits: ``FrameReader`` is fed bytes and yields frames, the encoders return bytes.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields
from typing import Any, Final, NamedTuple, cast

import msgpack

from penstock import errors
from penstock.errors import InvalidRequest, PenstockError, ProtocolError, TooLarge, UnknownRequest
from penstock.protocol.requests.request import Bytes, Reply, Request, Result
from penstock.protocol.requests.servers import Ping
from penstock.protocol.requests.table import REPLIES, REQUESTS

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
HEADER_BYTES_MAX: Final = 4 * 1024 * 1024
HEADER_ITEMS_MAX: Final = 1_000_000

_LENGTHS: Final = struct.Struct(">II")
_REPLY: Final = 0
_ERROR: Final = -1

# ---------------------------------------------------------------- field checks, made once from the annotations

_Check = Callable[[Any], Any]


def _plain(expected: type) -> _Check:
    def check(value: Any) -> Any:
        if type(value) is not expected:
            raise ProtocolError(f"expected {expected.__name__}, got {type(value).__name__}")
        return value

    return check


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ProtocolError(f"expected a number, got {type(value).__name__}")
    return float(value)


def _integer(value: Any) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise ProtocolError(f"expected a 64-bit integer, got {type(value).__name__}")
    return value


def _each(item: _Check) -> _Check:
    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not tuple:
            raise ProtocolError(f"expected an array, got {type(value).__name__}")
        return tuple([item(entry) for entry in value])

    return check


def _row(cls: Any) -> _Check:
    hints = typing.get_type_hints(cls)
    checks = [_check_of(hints[name]) for name in cls._fields]
    needed = len(checks) - len(cls._field_defaults)

    def check(value: Any) -> Any:
        if type(value) is not tuple or len(value) < needed:
            raise ProtocolError(f"expected {cls.__name__} with {needed} fields or more")
        return cls(*[one(entry) for one, entry in zip(checks, value, strict=False)])

    return check


def _check_of(hint: Any) -> _Check:
    if hint is float:
        return _number
    if hint is int:
        return _integer
    if hint in (str, bool, bytes):
        return _plain(hint)
    if typing.get_origin(hint) is tuple:
        return _each(_check_of(typing.get_args(hint)[0]))
    assert hasattr(hint, "_fields"), f"no wire form for {hint!r}"
    return _row(hint)


class _Shape(NamedTuple):
    cls: type
    names: tuple[str, ...]  # of the header's fields, in order
    checks: tuple[_Check, ...]
    needed: int  # how many of them have no default
    has_body: bool


def _shape(cls: type) -> _Shape:
    hints = typing.get_type_hints(cls)
    own = [entry for entry in fields(cls) if entry.name != "body"]
    return _Shape(
        cls,
        tuple(entry.name for entry in own),
        tuple(_check_of(hints[entry.name]) for entry in own),
        sum(entry.default is MISSING for entry in own),
        len(own) != len(fields(cls)),
    )


_SHAPES: Final[dict[type, _Shape]] = {}
"""Encoders of the kinds in use: a process makes few of all kinds."""


def _shape_of(cls: type) -> _Shape:
    found = _SHAPES.get(cls)
    return found if found is not None else _SHAPES.setdefault(cls, _shape(cls))


def learn_shapes() -> None:
    """Finds out the shapes of all kinds at once. Where the code travels by value (``penstock/spark/shipping.py``) this
    must be done before: the names in the annotations do not travel."""
    for cls in (*REQUESTS.values(), *REPLIES):
        _shape_of(cls)


# ---------------------------------------------------------------- frames

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def _frame(header: list[Any], body: Bytes = b"") -> list[Bytes]:
    packed = cast(bytes, _pack(header))
    total = 4 + len(packed) + len(body)
    if total > FRAME_BYTES_MAX or len(packed) > HEADER_BYTES_MAX:
        raise TooLarge(f"a frame has at most {FRAME_BYTES_MAX} bytes, not {total}")
    head = _LENGTHS.pack(total, len(packed)) + packed
    return [head, body] if body else [head]


def _encode(header: list[Any], value: Request | Reply) -> list[Bytes]:
    shape = _shape_of(type(value))
    header += [getattr(value, name) for name in shape.names]
    return _frame(header, value.body if shape.has_body else b"")  # type: ignore[union-attr]


def encode_request(request_id: int, request: Request) -> list[Bytes]:
    """The frame of a request, in parts to be joined or written together. Raises ``TooLarge``, and ``InvalidRequest``
    for numbers beyond 64 bits, text that is not Unicode, and objects that no request has."""
    sent = request.for_wire()
    try:
        return _encode([sent.code, request_id], sent)
    except (OverflowError, TypeError, UnicodeError) as error:
        raise InvalidRequest(f"an argument cannot be sent: {error}") from None


def encode_reply(request_id: int, reply: Reply) -> list[Bytes]:
    """The frame of a reply, in parts. Raises ``TooLarge``."""
    return _encode([_REPLY, request_id], reply)


def encode_error(request_id: int, error: PenstockError) -> list[Bytes]:
    """The frame of an error, in parts."""
    header = [_ERROR, request_id, error.code, error.message[:1024], error.hint[:1024]]
    if error.unknown is not type(error).unknown:
        header.append(error.unknown)
    return _frame(header)


def encode_result(request_id: int, result: Result) -> list[Bytes]:
    """The frame of whatever became of a request; a reply over the limit goes out as the error ``TooLarge``."""
    if isinstance(result, PenstockError):
        return encode_error(request_id, result)
    try:
        return encode_reply(request_id, result)
    except TooLarge as error:
        return encode_error(request_id, error)


PIECE_BYTES: Final = 1 << 14
"""Longer pieces of an incomplete frame are kept as they came: a copy takes new pages of memory, and each page costs the
kernel as much as a few messages cost us."""


class RawFrame(NamedTuple):
    """A frame whose header has the right outer form: first item, id, the other items, and the body."""

    kind: int
    request_id: int
    items: tuple[Any, ...]
    body: Bytes


def _split(frame: memoryview) -> RawFrame:
    header_bytes = int.from_bytes(frame[:4], "big")
    if header_bytes > len(frame) - 4 or header_bytes > HEADER_BYTES_MAX:
        raise ProtocolError(f"a header of {header_bytes} bytes in a frame of {len(frame)}")
    try:
        header = msgpack.unpackb(
            frame[4 : 4 + header_bytes],
            raw=False,
            use_list=False,  # an empty list takes 56 bytes, and time of each garbage collection
            max_array_len=min(HEADER_ITEMS_MAX, header_bytes),  # an item has a byte or more: no room for lies
            max_map_len=0,
            max_ext_len=0,
        )
    except Exception as error:  # msgpack raises a dozen unrelated classes on damage; all mean the same here
        raise ProtocolError(f"the header is no msgpack array: {type(error).__name__}") from None
    if type(header) is not tuple or len(header) < 2 or type(header[0]) is not int or type(header[1]) is not int:
        raise ProtocolError("a header begins with a code and an id")
    if not 0 <= header[1] < 1 << 63:
        raise ProtocolError("a request id is from 0 to 2^63 - 1")
    return RawFrame(header[0], header[1], header[2:], frame[4 + header_bytes :])


class FrameReader:
    """Cuts a stream of bytes into frames, whatever the pieces in which it arrives.

    It keeps at most one incomplete frame; a frame over ``bytes_max`` is a ``ProtocolError`` as soon as its length is
    read.
    """

    def __init__(self) -> None:
        self.bytes_max = FRAME_BYTES_MAX
        self._pieces: list[bytes | bytearray | memoryview] = []  # of the incomplete frame; short ones as one
        self._held = 0
        self._wanted = 0  # bytes of that frame with its length; 0 while its length is not known

    def bound(self, bytes_max: int) -> None:
        """Sets the largest size of frames that begin from now on."""
        self.bytes_max = bytes_max

    @property
    def incomplete(self) -> bool:
        """Whether the bytes so far end within a frame."""
        return self._held > 0

    @property
    def held(self) -> int:
        """Bytes of the incomplete frame."""
        return self._held

    @property
    def missing(self) -> int:
        """The number of bytes that the incomplete frame lacks; 0 without one, or if its length is not known yet."""
        return self._wanted - self._held if self._wanted else 0

    def receive(self, data: bytes | bytearray) -> Iterator[RawFrame]:
        """Frames that ``data`` completes. Raises ``ProtocolError``; the stream cannot be read on after that."""
        view = memoryview(data)
        if self._held:
            self._keep(view if type(data) is bytes else memoryview(bytes(data)))
            if not self._wanted or self._held < self._wanted:
                return
            frame, view = self._take_complete()
            if frame is not None:
                yield frame
        at, end = 0, len(view)
        while end - at >= 4:
            length = int.from_bytes(view[at : at + 4], "big")
            if not 4 <= length <= self.bytes_max:
                raise ProtocolError(f"a frame of {length} bytes; the limit is {self.bytes_max}")
            if at + 4 + length > end:
                break
            yield _split(view[at + 4 : at + 4 + length])
            at += 4 + length
        if at < end:
            is_most = 2 * (end - at) >= end  # a short rest would keep all that it came with in memory
            self._keep(view[at:] if is_most and type(view.obj) is bytes else memoryview(bytes(view[at:])))

    def _keep(self, data: memoryview) -> None:
        pieces, size = self._pieces, len(data)
        self._held += size
        if size >= PIECE_BYTES:
            pieces.append(data)
        elif pieces and type(pieces[-1]) is bytearray:
            pieces[-1] += data
        else:
            pieces.append(bytearray(data))
        if not self._wanted and self._held >= 4:
            self._pieces = pieces = [b"".join(pieces)] if len(pieces) > 1 else pieces
            length = int.from_bytes(memoryview(pieces[0])[:4], "big")
            self._wanted = 4 + length if 4 <= length <= self.bytes_max else 4

    def _take_complete(self) -> tuple[RawFrame | None, memoryview]:
        """The long frame that is complete now, if there is one, its body joined with one copy; and the bytes still to
        be cut into frames."""
        pieces, wanted, behind = self._pieces, self._wanted, self._held - self._wanted
        self._pieces, self._held, self._wanted = [], 0, 0
        first, last = memoryview(pieces[0]), memoryview(pieces[-1])
        if len(pieces) > 1 and wanted >= PIECE_BYTES and len(first) >= 8:
            body_at = 8 + int.from_bytes(first[4:8], "big")
            if body_at <= min(len(first), wanted):
                frame = _split(first[4:body_at])
                end = len(last) - behind
                body = b"".join([first[body_at:], *pieces[1:-1], last[:end]])
                return RawFrame(frame.kind, frame.request_id, frame.items, body), memoryview(bytes(last[end:]))
        return None, memoryview(b"".join(pieces))


def _build(shape: _Shape, items: tuple[Any, ...], body: Bytes) -> Any:
    if len(items) < shape.needed:
        raise ProtocolError(f"{shape.cls.__name__} has {shape.needed} fields or more, not {len(items)}")
    values = {name: check(item) for name, check, item in zip(shape.names, shape.checks, items, strict=False)}
    if shape.has_body:
        values["body"] = body
    return shape.cls(**values)


def decode_request(frame: RawFrame) -> Request:
    """The request in a frame. Raises ``UnknownRequest`` or ``ProtocolError``."""
    cls = REQUESTS.get(frame.kind)
    if cls is None:
        raise UnknownRequest(f"unknown request type {frame.kind}", hint="the other side may be of a newer version")
    return cast(Request, _build(_shape_of(cls), frame.items, frame.body))


def decode_result(frame: RawFrame, asked: type[Request]) -> Result:
    """The reply or error in a frame that answers a request of type ``asked``. Raises ``ProtocolError``."""
    if frame.kind == _REPLY:
        return cast(Reply, _build(_shape_of(asked.reply), frame.items, frame.body))
    if frame.kind != _ERROR or len(frame.items) < 3:
        raise ProtocolError("neither a reply nor an error")
    code, message, hint = frame.items[:3]
    if type(code) is not int or type(message) is not str or type(hint) is not str:
        raise ProtocolError("an error has a code, a message and a hint")
    unknown = frame.items[3] if len(frame.items) > 3 else None
    return errors.from_wire(code, message, hint, unknown if type(unknown) is bool else None)


def last_word(frame: RawFrame) -> PenstockError:
    """The error in a frame with id 0, by which a server ends the connection. Raises ``ProtocolError``."""
    result = decode_result(frame, Ping)
    return result if isinstance(result, PenstockError) else ProtocolError("a reply to no request")


def join(parts: Sequence[Bytes]) -> bytes:
    """The parts of many frames as one piece for one write."""
    return b"".join(parts)
