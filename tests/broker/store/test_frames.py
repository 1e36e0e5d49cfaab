"""Frames: a flipped bit anywhere shows, and so does a frame in the wrong place."""

from __future__ import annotations

import random
import zlib

from hypothesis import given
from hypothesis import strategies as st

from broker.store.frames import (
    BLANK_BYTES_MIN,
    blank_frame,
    crc32,
    frame_length,
    good_frames,
    good_within,
    holds_record,
    is_blank,
    is_good,
    queue_offset_of,
    read_head,
    read_stored,
    stored_ms_of,
)
from penstock.protocol.message import FRAME_HEAD_BYTES, decode_message, encode_record
from tests.broker.store.store_rig import pack_frame

RECORD = encode_record(b"telemetry", b"21.5", b"TAGS\x01hot", queue_id=9, flag=5, born_ms=77)
FRAME = pack_frame(RECORD, 3, 7, 1000, 123, 1, 900)


def test_a_frame_gives_back_its_record_with_the_brokers_four_fields() -> None:
    message = decode_message(FRAME[FRAME_HEAD_BYTES:])
    assert (message.topic, message.body, message.tag, message.born_ms) == ("telemetry", b"21.5", "hot", 77)
    assert (message.queue.number, message.offset, message.position, message.stored_ms) == (3, 7, 1000, 123)
    stored = read_stored(FRAME, 1000)
    assert (stored.size, stored.flag, stored.queue_id, stored.properties) == (len(FRAME), 5, 3, b"TAGS\x01hot")
    assert (queue_offset_of(FRAME), stored_ms_of(FRAME), read_head(FRAME).watermark) == (7, 123, 900)
    assert holds_record(FRAME)


def test_every_flipped_bit_makes_a_frame_bad() -> None:
    assert is_good(FRAME, 1000)
    for at in range(len(FRAME)):
        for bit in range(8):
            rotten = bytearray(FRAME)
            rotten[at] ^= 1 << bit
            assert not is_good(bytes(rotten), 1000), f"byte {at} bit {bit}"


def test_a_frame_that_stands_elsewhere_is_bad() -> None:
    assert not is_good(FRAME, 1001)


def test_a_frame_is_good_only_as_a_whole() -> None:
    data = b"..." + FRAME + b"..."
    assert good_within(data, 3, len(FRAME), 1000)
    for size in (0, 10, len(FRAME) - 1, len(FRAME) + 1, len(FRAME) + 10):
        assert not good_within(data, 3, size, 1000)


def test_random_bytes_and_zeros_are_no_frame() -> None:
    rng = random.Random(1)
    for data in [bytes(500), *[rng.randbytes(500) for _ in range(200)]]:
        assert frame_length(data, 0, 500) == 0
        assert not is_good(data, 0)
        assert not is_blank(data, 500)


def test_a_length_beyond_the_room_is_no_frame() -> None:
    assert frame_length(FRAME, 0, len(FRAME)) == len(FRAME)
    assert frame_length(FRAME, 0, len(FRAME) - 1) == 0


def test_a_blank_frame_fills_exactly_the_rest() -> None:
    blank = blank_frame(500, 1, 900)
    assert len(blank) == BLANK_BYTES_MIN
    assert is_blank(blank, 500)
    assert not is_blank(blank, 499)
    assert not is_blank(blank[:-1], 500)
    rotten = bytearray(blank)
    rotten[20] ^= 1
    assert not is_blank(bytes(rotten), 500)


def test_many_frames_are_judged_as_each_one_is() -> None:
    second = pack_frame(RECORD, 3, 8, 1000 + len(FRAME), 123, 1, 900)
    data = FRAME + second
    places = [(0, 1000, len(FRAME), 0), (1, 1000 + len(FRAME), len(second), 0)]
    assert good_frames(data, 1000, places) == places
    assert good_frames(data, 1001, places) == []
    assert good_frames(data[:-1], 1000, places) == places[:1]
    for at in range(len(data)):
        rotten = bytearray(data)
        rotten[at] ^= 1
        assert good_frames(bytes(rotten), 1000, places) == [places[at < len(FRAME)]]
    for wrong in ((0, 1000, len(FRAME) - 1, 0), (0, 1000, 30, 0), (0, 5000, 200, 0), (0, 1000, 0, 0)):
        assert good_frames(data, 1000, [wrong]) == []


@given(st.binary(max_size=2000))
def test_the_checksum_of_a_body_is_zlibs(body: bytes) -> None:
    assert crc32(body) == zlib.crc32(body)
