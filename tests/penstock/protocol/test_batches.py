"""Pulled batches as messages of a queue: what one by one gives, with any sizes and with or without a checksum."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidMessage
from penstock.protocol.batches import ALIKE_FROM, checksum_of, decode_queue
from penstock.protocol.message import (
    ENTRY,
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    FRAME_MAGIC,
    Message,
    decode_batch,
    encode_message,
)
from penstock.protocol.received import MessageQueue


def batch_of(*records: bytes) -> bytes:
    frames = [FRAME_HEAD.pack(0, FRAME_MAGIC, FRAME_HEAD_BYTES + len(one), 0, 0) + one for one in records]
    return b"".join([*[ENTRY.pack(100 + at, 0, len(frame), 0) for at, frame in enumerate(frames)], *frames])


IN_QUEUE = MessageQueue("b", "t", 0)


def test_a_queues_batch_gives_the_messages_with_the_offsets_of_the_queue() -> None:
    sent = [Message("t", b"one", key="k"), Message("t"), Message("t", b"x" * 999, properties={"p": "v" * 70_000})]
    found = decode_queue(3, batch_of(*map(encode_message, sent)), IN_QUEUE)
    assert [(one.queue, one.offset, one.body) for one in found] == [
        (IN_QUEUE, 100 + at, one.body) for at, one in enumerate(sent)
    ]
    assert [(one.key, dict(one.properties)) for one in found] == [(one.key, dict(one.properties)) for one in sent]
    assert decode_queue(0, b"", IN_QUEUE) == []


@given(st.integers(0, 10_000), st.integers(0, 255))
@settings(max_examples=125)
def test_a_changed_byte_of_a_queues_batch_is_refused_as_it_is_one_by_one(place: int, byte: int) -> None:
    batch = bytearray(batch_of(*[encode_message(Message("t", b"body", key=f"k{at}")) for at in range(3)]))
    batch[place % len(batch)] = byte
    try:
        wanted = [message._body for _, message in decode_batch(3, batch, IN_QUEUE)]
    except InvalidMessage:
        with pytest.raises(InvalidMessage):
            decode_queue(3, batch, IN_QUEUE)
    else:
        assert [message._body for message in decode_queue(3, batch, IN_QUEUE)] == wanted


@given(st.integers(0, 1 << 40), st.binary(max_size=600))
@settings(max_examples=50)
def test_any_bytes_are_a_queues_batch_or_invalid_and_nothing_else(count: int, data: bytes) -> None:
    with suppress(InvalidMessage):
        decode_queue(count, data, IN_QUEUE)


@given(
    st.lists(st.tuples(st.sampled_from([b"", b"a", b"bb"]), st.sampled_from(["", "k", "kk"])), min_size=1, max_size=30),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=75)
def test_a_batch_is_the_same_with_and_without_a_checksum(
    made: list[tuple[bytes, str]], alike: bool, with_gap: bool
) -> None:
    sent = [Message("t", body, key) for body, key in (made[:1] * 30 if alike else made)]
    batch = bytearray(batch_of(*map(encode_message, sent)))
    if with_gap:
        batch[:8] = (7).to_bytes(8, "big")
    checked = decode_queue(len(sent), batch, IN_QUEUE, checksum_of(bytes(batch)))
    assert checked == decode_queue(len(sent), batch, IN_QUEUE)
    assert [(one.body, one.key) for one in checked] == [(one.body, one.key) for one in sent]
    assert [one.offset for one in checked] == [7 if with_gap else 100, *range(101, 100 + len(sent))]


@pytest.mark.parametrize("place", [0, 20, 600, 1100, -1])
def test_a_changed_bit_does_not_match_the_checksum(place: int) -> None:
    batch = bytearray(batch_of(*[encode_message(Message("t", b"body"))] * ALIKE_FROM))
    checksum = checksum_of(bytes(batch))
    assert len(decode_queue(ALIKE_FROM, batch, IN_QUEUE, checksum)) == ALIKE_FROM
    batch[place] ^= 4
    with pytest.raises(InvalidMessage, match="checksum"):
        decode_queue(ALIKE_FROM, batch, IN_QUEUE, checksum)


@given(st.integers(0, 40), st.binary(max_size=900), st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255))))
@settings(max_examples=125)
def test_a_sound_checksum_over_anything_gives_messages_or_invalid_and_nothing_else(
    count: int, data: bytes, changes: list[tuple[int, int]]
) -> None:
    batch = bytearray(data if count % 2 else batch_of(*[encode_message(Message("t", b"body"))] * count))
    for place, byte in changes:
        if batch:
            batch[place % len(batch)] = byte
    with suppress(InvalidMessage):
        assert len(decode_queue(count, batch, IN_QUEUE, checksum_of(bytes(batch)))) == count
