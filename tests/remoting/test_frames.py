"""Commands as bytes: both headers, any cut of the stream, and bytes that are none."""

from __future__ import annotations

import contextlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from remoting.frames import BINARY, FRAME_BYTES_MAX, JSON, ONE_WAY, Command, FrameReader, encode

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
COMMANDS = st.builds(
    Command,
    st.integers(0, 32_767),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.dictionaries(TEXT, TEXT, max_size=4),
    st.binary(max_size=50),
    st.sampled_from([0, ONE_WAY]),
    TEXT,
    st.sampled_from(["JAVA", "CPP", "OTHER"]),
    st.integers(0, 32_767),
    st.sampled_from([JSON, BINARY]),
)


@given(st.lists(COMMANDS, max_size=4), st.integers(1, 64))
def test_what_is_encoded_is_read_however_the_stream_is_cut(commands: list[Command], step: int) -> None:
    data = b"".join([encode(one) for one in commands])
    reader, found = FrameReader(), []
    for at in range(0, len(data), step):
        found += reader.feed(data[at : at + step])
    assert found == commands


@given(st.binary(max_size=200))
def test_any_bytes_are_commands_or_a_protocol_error(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert all(isinstance(one, Command) for one in FrameReader().feed(data))


@given(COMMANDS, st.data())
def test_a_frame_with_bytes_changed_is_a_command_or_a_protocol_error(command: Command, data: st.DataObject) -> None:
    frame = bytearray(encode(command))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = FrameReader().feed(bytes(frame))
    except ProtocolError:
        return
    assert len(found) <= 1


def json_frame(**row: object) -> bytes:
    head = json.dumps(row).encode()
    return struct.pack(">II", 4 + len(head), len(head)) + head


def test_fields_may_be_numbers_and_booleans_and_null() -> None:
    fields = {"a": 7, "b": True, "c": None, "d": 1.5, "e": "x"}
    (command,) = FrameReader().feed(json_frame(code=1, opaque=2, extFields=fields))
    assert command.fields == {"a": "7", "b": "true", "d": "1.5", "e": "x"}
    assert command.flagged("b")
    assert not command.flagged("e")


@pytest.mark.parametrize("length", [0, 3, FRAME_BYTES_MAX + 1, 0xFFFF_FFFF])
def test_a_length_that_none_may_have_is_refused_before_its_bytes_come(length: int) -> None:
    with pytest.raises(ProtocolError, match="a frame of"):
        FrameReader().feed(struct.pack(">II", length, 0))


@pytest.mark.parametrize(
    "row",
    [
        {"code": "x"},
        {"code": 1 << 40},
        {"extFields": [1]},
        {"extFields": {"a": [1]}},
        {"extFields": {"a": "\ud800"}},
        {"remark": {"a": 1}},
    ],
)
def test_a_header_that_is_no_command_is_refused(row: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        FrameReader().feed(json_frame(**row))


def test_json_that_is_nested_without_end_is_refused() -> None:
    head = b"[" * 100_000
    with pytest.raises(ProtocolError):
        FrameReader().feed(struct.pack(">II", 4 + len(head), len(head)) + head)


def test_a_missing_or_wrong_number_is_named() -> None:
    command = Command(1, fields={"n": "x", "big": str(1 << 70)})
    for name in ("n", "gone", "big"):
        with pytest.raises(ProtocolError, match=name):
            command.number(name)
    assert command.number("gone", 5) == 5
