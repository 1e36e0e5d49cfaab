"""Frames: every request and reply round trips, any chunking gives the same frames, hostile bytes give errors only."""

from __future__ import annotations

import random
import re
import tracemalloc
import types
import typing
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BY_CODE, InvalidRequest, NoRoute, PenstockError, ProtocolError, TooLarge, UnknownRequest
from penstock.protocol import wire
from penstock.protocol.requests.messages import Append, Appended, Pull, Pulled
from penstock.protocol.requests.request import Done, Reply, Request
from penstock.protocol.requests.routes import (
    BrokerRoute,
    HeartbeatReply,
    QueryRoute,
    RegisterBroker,
    Route,
    UnregisterBroker,
)
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.protocol.requests.table import REPLIES, REQUESTS
from penstock.protocol.wire import (
    PIECE_BYTES,
    FrameReader,
    RawFrame,
    decode_request,
    decode_result,
    encode_error,
    encode_reply,
    encode_request,
    join,
)

PAGE = (Path(__file__).parents[3] / "docs" / "formats" / "wire.md").read_text()


# ---------------------------------------------------------------- values of any request and reply


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values for an annotation of penstock/requests."""
    if hint is int:
        return st.integers(-(1 << 63), (1 << 63) - 1)
    if hint is float:
        return st.floats(allow_nan=False)
    if hint is bool:
        return st.booleans()
    if hint is str:
        return st.text(max_size=12)
    if hint is bytes or isinstance(hint, types.UnionType):
        return st.binary(max_size=40)
    if typing.get_origin(hint) is tuple:
        return st.lists(values_of(typing.get_args(hint)[0]), max_size=3).map(tuple)
    hints = typing.get_type_hints(hint)
    return st.tuples(*[values_of(hints[name]) for name in hint._fields]).map(lambda made: hint(*made))


def instances(cls: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{field.name: values_of(hints[field.name]) for field in fields(cls)})


requests = st.sampled_from(list(REQUESTS.values())).flatmap(instances)
ids = st.integers(0, (1 << 63) - 1)


def frames_of(data: bytes) -> list[RawFrame]:
    reader = FrameReader()
    frames = list(reader.receive(data))
    assert not reader.incomplete
    return frames


def framed(header: Any, body: bytes = b"") -> bytes:
    packed = header if isinstance(header, bytes) else msgpack.packb(header)
    return (4 + len(packed) + len(body)).to_bytes(4, "big") + len(packed).to_bytes(4, "big") + packed + body


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and all(
        getattr(one, field.name) == getattr(other, field.name) for field in fields(one)
    )


# ---------------------------------------------------------------- round trips


@pytest.mark.parametrize("theme", sorted({cls.__module__ for cls in REQUESTS.values()}))
def test_a_request_and_its_reply_come_back_as_they_were_sent(theme: str) -> None:
    kinds = [cls for cls in REQUESTS.values() if cls.__module__ == theme]

    @given(st.tuples(*[st.tuples(instances(cls), instances(cls.reply), ids) for cls in kinds]))
    @settings(max_examples=10)
    def come_back(sent: tuple[tuple[Request, Reply, int], ...]) -> None:
        for request, reply, request_id in sent:
            [frame] = frames_of(join(encode_request(request_id, request)))
            assert (frame.kind, frame.request_id) == (request.code, request_id)
            assert same(decode_request(frame), request)
            [frame] = frames_of(join(encode_reply(request_id, reply)))
            assert frame.request_id == request_id
            result = decode_result(frame, type(request))
            assert not isinstance(result, PenstockError)
            assert same(result, reply)

    come_back()


@pytest.mark.parametrize("cls", BY_CODE.values(), ids=lambda cls: cls.__name__)
def test_an_error_comes_back_as_it_was_sent(cls: type[PenstockError]) -> None:
    error = cls("what happened")
    error.hint = "what to do"
    [frame] = frames_of(join(encode_error(7, error)))
    back = decode_result(frame, Ping)
    assert isinstance(back, cls)
    assert (back.message, back.hint) == ("what happened", "what to do")


def test_a_long_error_is_cut() -> None:
    [frame] = frames_of(join(encode_error(7, NoRoute("m" * 9999, hint="h" * 9999))))
    back = decode_result(frame, Ping)
    assert isinstance(back, NoRoute)
    assert (len(back.message), len(back.hint)) == (1024, 1024)


# ---------------------------------------------------------------- streams


@given(st.lists(st.tuples(ids, requests), max_size=6), st.data())
@settings(max_examples=37)
def test_any_cutting_of_a_stream_gives_the_same_requests(sent: list[tuple[int, Request]], data: st.DataObject) -> None:
    stream = b"".join(join(encode_request(*one)) for one in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader, received = FrameReader(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        for frame in reader.receive(stream[start:end]):
            received.append((frame.request_id, decode_request(frame)))
    assert not reader.incomplete
    assert [number for number, _ in received] == [number for number, _ in sent]
    assert all(same(one, other) for (_, one), (_, other) in zip(received, sent, strict=True))


def taken(pieces: list[bytes]) -> tuple[list[tuple[int, int, Any, bytes]], str, bool]:
    """The frames in a stream that comes in these pieces, the error that ends it, and whether it ends within a frame."""
    reader, frames = FrameReader(), []
    try:
        for piece in pieces:
            for frame in reader.receive(piece):
                frames.append((frame.kind, frame.request_id, frame.items, bytes(frame.body)))
    except ProtocolError as error:
        return frames, error.message, False
    return frames, "", reader.incomplete


DAMAGE = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"\xff\xff\xff\xff", b"\0\0\0\3", b"\0\0\0\5\0\0\0\1\xc1", b"\0\0\0\4\0\0\0\x09"]),
)


@given(st.lists(st.tuples(ids, requests), max_size=4), DAMAGE, st.data())
@settings(max_examples=50)
def test_any_cutting_of_any_bytes_gives_the_same_frames_and_the_same_end(
    sent: list[tuple[int, Request]], damage: bytes, data: st.DataObject
) -> None:
    stream = b"".join(join(encode_request(*one)) for one in sent) + damage
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    whole = taken([stream])
    assert len(whole[0]) >= len(sent)
    assert taken([stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]) == whole
    assert taken([stream[at : at + 1] for at in range(len(stream))]) == whole


def test_a_stream_that_ends_within_a_frame_says_so() -> None:
    stream = join(encode_request(1, QueryRoute("a")))
    for size in range(1, len(stream)):
        reader = FrameReader()
        assert list(reader.receive(stream[:size])) == []
        assert reader.incomplete
        assert len(list(reader.receive(stream[size:]))) == 1
        assert not reader.incomplete


@pytest.mark.parametrize("seed", range(30))
def test_long_frames_in_pieces_of_any_size_are_put_together_whole(seed: int) -> None:
    rng = random.Random(seed)
    bodies = [rng.randbytes(rng.choice((0, 7, PIECE_BYTES - 30, PIECE_BYTES, 300_000))) for _ in range(6)]
    stream = b"".join(join(encode_request(at, Append(1, False, body))) for at, body in enumerate(bodies, 1))
    reader, got, at = FrameReader(), list[RawFrame](), 0
    while at < len(stream):
        end = at + rng.choice((1, 5, 100, PIECE_BYTES, PIECE_BYTES + 1, 200_000))
        piece = stream[at:end] if rng.random() < 0.8 else bytearray(stream[at:end])
        got += [RawFrame(*frame[:3], bytes(frame.body)) for frame in reader.receive(piece)]
        piece = b""
        at = end
        assert reader.held == len(stream[:at]) - sum(
            len(join(encode_request(n, Append(1, False, bodies[n - 1])))) for n in range(1, len(got) + 1)
        )
    assert [(frame.request_id, frame.body) for frame in got] == list(enumerate(bodies, 1))
    assert not reader.incomplete


def test_a_long_frame_in_small_pieces_is_not_copied_per_piece() -> None:
    body = bytes(2 << 20)
    stream = memoryview(join(encode_request(1, Append(1, False, body))))
    reader = FrameReader()
    tracemalloc.start()
    frames = [frame for at in range(0, len(stream), 4096) for frame in reader.receive(bytes(stream[at : at + 4096]))]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(frame.body) for frame in frames] == [len(body)]
    assert peak < 8 * len(body)


def test_the_body_of_a_frame_stays_good_while_more_is_received() -> None:
    reader = FrameReader()
    [first] = reader.receive(join(encode_request(1, Append(1, False, b"first"))))
    list(reader.receive(join(encode_request(2, Append(1, False, b"other")))))
    assert bytes(first.body) == b"first"


# ---------------------------------------------------------------- growing


def test_a_peer_that_leaves_out_trailing_fields_gets_their_defaults() -> None:
    [frame] = frames_of(framed([41, 5, "t:0", 9]))
    assert decode_request(frame) == Pull("t:0", 9)


def test_fields_of_a_newer_peer_are_ignored() -> None:
    [frame] = frames_of(framed([13, 5, "t", "new", [1, 2]]))
    assert decode_request(frame) == QueryRoute("t")
    [frame] = frames_of(framed([0, 5, [["b", "a:1", 4, True, -1, 0, 0, [], "new"]], [], "more"]))
    assert decode_result(frame, QueryRoute) == Route((BrokerRoute("b", "a:1", 4),))


def test_an_unknown_request_is_told_apart_from_damage() -> None:
    [frame] = frames_of(framed([999, 5, "x"]))
    with pytest.raises(UnknownRequest, match="999"):
        decode_request(frame)


# ---------------------------------------------------------------- damage


DAMAGED_STREAMS = [
    ("a frame shorter than its header length", b"\x00\x00\x00\x03abc"),
    ("a frame of length 0", bytes(4)),
    ("a frame over the limit", b"\x01\x00\x00\x01"),
    ("the longest length", b"\xff\xff\xff\xff"),
    ("a header longer than its frame", b"\x00\x00\x00\x05\x00\x00\x00\x02\x90"),
    ("an empty header", b"\x00\x00\x00\x04\x00\x00\x00\x00"),
    ("a header that is no msgpack", framed(b"\xc1")),
    ("a header with bytes after it", framed(b"\x92\x01\x02\x03")),
    ("a header that is a map", framed({})),
    ("a header that is a number", framed(5)),
    ("a header without an id", framed([1])),
    ("a code that is no number", framed(["1", 1])),
    ("a code that is a boolean", framed([True, 1])),
    ("an id that is no number", framed([1, None])),
    ("a negative id", framed([1, -1])),
    ("an id over 63 bits", framed([1, 1 << 63])),
    ("a map within", framed([13, 1, {"a": 1}])),
    ("an extension type within", framed([13, 1, msgpack.ExtType(1, b"x")])),
    ("text that is not UTF-8", framed(b"\x93\x0d\x01\xa1\xff")),
    ("an array that lies about its length", framed(b"\xdd\x7f\xff\xff\xff")),
]


@pytest.mark.parametrize("stream", [data for _, data in DAMAGED_STREAMS], ids=[name for name, _ in DAMAGED_STREAMS])
def test_damage_in_the_framing_is_a_protocol_error(stream: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(FrameReader().receive(stream))


@pytest.mark.parametrize(
    "header",
    [
        [13, 1],
        [13, 1, 5],
        [13, 1, None],
        [13, 1, b"bytes"],
        [41, 1, "t:0", "9"],
        [41, 1, "t:0", 9.0],
        [41, 1, "t:0", True],
        [41, 1, "t:0", 1 << 63],
        [41, 1, "t:0", 0, 0, 0, "soon"],
        [41, 1, "t:0", 0, 0, 0, 0.0, "tags"],
        [41, 1, "t:0", 0, 0, 0, 0.0, [1]],
        [40, 1, 1, 1],
        [10, 1, "b", "a", 1, 120, [["t"]]],
        [10, 1, "b", "a", 1, 120, ["t"]],
        [10, 1, "b", "a", 1, 120, [["t", "4"]]],
    ],
)
def test_a_field_of_the_wrong_type_is_a_protocol_error(header: list[Any]) -> None:
    [frame] = frames_of(framed(header))
    with pytest.raises(ProtocolError):
        decode_request(frame)


@pytest.mark.parametrize(
    "header", [[5, 1], [0, 1], [0, 1, "a", "b"], [-1, 1], [-1, 1, "6", "m", "h"], [-1, 1, 6, 5, "h"]]
)
def test_a_reply_that_does_not_fit_its_request_is_a_protocol_error(header: list[Any]) -> None:
    [frame] = frames_of(framed(header))
    with pytest.raises(ProtocolError):
        decode_result(frame, Ping)


def swallow(data: bytes) -> None:
    """Feeds bytes to every decoder; anything but a PenstockError fails the test."""
    try:
        for frame in FrameReader().receive(data):
            for cls in (Ping, Pull, Append, RegisterBroker):
                with suppress(PenstockError):
                    decode_request(frame)
                with suppress(PenstockError):
                    decode_result(frame, cls)
    except ProtocolError:
        return


@given(st.binary(max_size=200))
@settings(max_examples=75)
def test_any_bytes_give_frames_or_a_protocol_error_and_nothing_else(data: bytes) -> None:
    swallow(data)


@given(requests, st.data())
@settings(max_examples=75)
def test_a_frame_with_changed_bytes_gives_a_request_or_an_error_and_nothing_else(
    request: Request, data: st.DataObject
) -> None:
    stream = bytearray(join(encode_request(1, request)))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    swallow(bytes(stream))


msgpack_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=12,
)


@given(st.lists(msgpack_values, max_size=8), st.sampled_from([*REQUESTS, 0, -1, 999]))
@settings(max_examples=75)
def test_any_header_gives_a_request_or_an_error_and_nothing_else(items: list[Any], code: int) -> None:
    swallow(framed([code, 1, *items]))


@pytest.mark.parametrize(
    "header",
    [
        b"\xdd\x00\x0f\x42\x40" * 500,
        b"\xdc\xff\xff" * 800,
        b"\xdd\xff\xff\xff\xff" * 100,
        b"\xc6\x7f\xff\xff\xff",
        b"\xdb\x7f\xff\xff\xff",
    ],
    ids=["nested arrays", "nested short arrays", "arrays of 2^32", "bytes of 2^31", "text of 2^31"],
)
def test_a_small_frame_never_makes_a_large_allocation(header: bytes) -> None:
    stream = framed(header)
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        list(FrameReader().receive(stream))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_length_alone_allocates_nothing() -> None:
    reader = FrameReader()
    tracemalloc.start()
    assert list(reader.receive(wire.FRAME_BYTES_MAX.to_bytes(4, "big"))) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 1024


# ---------------------------------------------------------------- limits


def test_a_frame_over_the_limit_is_not_sent() -> None:
    with pytest.raises(TooLarge):
        encode_request(1, Append(1, False, bytes(wire.FRAME_BYTES_MAX)))
    with pytest.raises(TooLarge):
        encode_reply(1, ServerInfo("r", "n", "v" * (wire.HEADER_BYTES_MAX + 1)))


def test_a_reply_over_the_limit_goes_out_as_an_error() -> None:
    [frame] = frames_of(join(wire.encode_result(1, Pulled(1, 1, 0, 1, bytes(wire.FRAME_BYTES_MAX)))))
    assert isinstance(decode_result(frame, Pull), TooLarge)
    [frame] = frames_of(join(wire.encode_result(1, Done())))
    assert decode_result(frame, UnregisterBroker) == Done()
    [frame] = frames_of(join(wire.encode_result(1, NoRoute("no"))))
    assert isinstance(decode_result(frame, QueryRoute), NoRoute)


def test_a_body_is_not_copied_when_it_is_sent() -> None:
    body = memoryview(bytes(1000))
    parts = encode_request(1, Append(1, False, body))
    assert parts[1] is body


def test_a_whole_number_is_taken_where_a_fraction_is_expected() -> None:
    [frame] = frames_of(framed([11, 1, "b", "a", 1, 120]))
    assert decode_request(frame) == REQUESTS[11]("b", "a", 1, 120.0)  # type: ignore[call-arg]


# ---------------------------------------------------------------- the page of the format


def examples_of_the_page() -> dict[str, bytes]:
    blocks = re.findall(r"^```hex (.+)\n((?:.*\n)*?)```", PAGE, re.MULTILINE)
    return {
        title: bytes.fromhex("".join(re.sub(r"#.*", "", line) for line in text.splitlines())) for title, text in blocks
    }


def test_the_worked_example_of_the_page_is_right_byte_by_byte() -> None:
    route = Route((BrokerRoute("broker-a", "127.0.0.1:10911", 4),))
    assert examples_of_the_page() == {
        "request": join(encode_request(7, QueryRoute("telemetry"))),
        "reply": join(encode_reply(7, route)),
        "request with a body": join(encode_request(8, Append(1, True, b"RECORD"))),
        "error": join(encode_error(9, NoRoute("no broker", hint="wait"))),
    }
    [frame] = frames_of(examples_of_the_page()["reply"])
    assert decode_result(frame, QueryRoute) == route


def test_every_damage_case_of_the_page_is_one() -> None:
    cases = re.findall(r"^\| `([0-9a-f ]+)` \|", PAGE, re.MULTILINE)
    assert len(cases) >= 8
    for case in cases:
        with pytest.raises(ProtocolError):
            list(map(decode_request, FrameReader().receive(bytes.fromhex(case))))


def shown(cls: type) -> str:
    parts = [
        field.name if field.default is MISSING else f"{field.name}?" for field in fields(cls) if field.name != "body"
    ]
    return ", ".join(parts) + (" + body" if len(parts) < len(fields(cls)) else "")


def test_the_table_of_requests_on_the_page_is_complete_and_right() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (.*) \| `(\w+)`: (.*) \|$", PAGE, re.MULTILINE)
    expected = [
        (str(code), cls.__name__, shown(cls) or "–", cls.reply.__name__, shown(cls.reply) or "–")
        for code, cls in sorted(REQUESTS.items())
    ]
    assert rows == expected


def test_the_table_of_rows_on_the_page_is_complete_and_right() -> None:
    rows = re.findall(r"^\| `(\w+)` \| \[(.*)\] \|$", PAGE, re.MULTILINE)
    used: dict[str, str] = {}
    kinds: list[type] = [*REQUESTS.values(), *REPLIES]
    for cls in kinds:
        for hint in typing.get_type_hints(cls).values():
            for row in typing.get_args(hint):
                if hasattr(row, "_fields") and row.__name__ not in used:
                    kinds.append(row)  # it may have rows in turn
                    names = [f"{name}?" if name in row._field_defaults else name for name in row._fields]
                    used[row.__name__] = ", ".join(names)
    assert dict(rows) == used


def test_the_table_of_errors_on_the_page_is_complete_and_right() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (\w+) \| (yes|no) \|", PAGE, re.MULTILINE)
    expected = [
        (str(code), cls.__name__, cls.fault, "yes" if cls.retryable else "no") for code, cls in sorted(BY_CODE.items())
    ]
    assert rows == expected


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    assert f"{wire.FRAME_BYTES_MAX:,} bytes" in PAGE
    assert f"{wire.HEADER_BYTES_MAX:,} bytes" in PAGE
    assert f"{wire.HEADER_ITEMS_MAX:,} items" in PAGE


def test_appended_is_small_where_no_detail_is_asked() -> None:
    assert len(join(encode_reply(1, Appended("disk")))) < 24
    assert HeartbeatReply(True).known


def test_a_header_of_nothing_but_empty_arrays_takes_no_memory_to_speak_of() -> None:
    count = 100_000
    header = b"\x93\x29\x01\xdd" + count.to_bytes(4, "big") + b"\x90" * count
    data = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    tracemalloc.start()
    (frame,) = FrameReader().receive(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(frame.items[0]) == count
    assert peak < 32 * len(data)


@pytest.mark.parametrize("topic", [2**64, -(2**63) - 1, "caf\udce9", object()])
def test_what_no_request_can_hold_is_refused_and_the_next_one_is_sent(topic: Any) -> None:
    with pytest.raises(InvalidRequest, match="an argument cannot be sent"):
        encode_request(1, QueryRoute(topic))
    (frame,) = FrameReader().receive(join(encode_request(2, QueryRoute("orders"))))
    assert (frame.request_id, decode_request(frame)) == (2, QueryRoute("orders"))
