from __future__ import annotations

import itertools
import os
import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.mqtt import codec
from gateway.mqtt.packets import Auth, Connect, Packet, Puback, Publish, Subscribe, Subscription, Unsubscribe
from gateway.mqtt.reader import PacketReader
from gateway.mqtt.reason_codes import PacketError
from tests.gateway.mqtt.mutation import corpus, mutated
from tests.gateway.mqtt.packet_strategies import streams

MUTATED_PACKETS = int(os.environ.get("PENSTOCK_FUZZ_PACKETS", "40000"))
LIMIT = 1 << 20
WAITED_FOR = (Connect, Subscribe, Unsubscribe, Auth)


def feed(chunks: list[bytes], level: int = 0, limit: int = LIMIT, connect_limit: int | None = None) -> tuple[Any, ...]:
    """All packets of a stream in pieces, the reason code it ended with, and how much was left over."""
    reader = PacketReader(limit, connect_limit)
    reader.level = level
    packets: list[Packet] = []
    for chunk in chunks:
        try:
            packets += reader.receive(chunk)
        except PacketError as error:
            return [*packets, *reader.before_damage], error.reason_code, 0
    return packets, None, reader.pending


def stepped(chunks: list[bytes]) -> tuple[list[list[Packet]], int | None]:
    """The steps of a stream in pieces, half of which come while it waits, and the reason code that it ended with."""
    reader = PacketReader(LIMIT)
    steps: list[list[Packet]] = []
    try:
        for chunk in chunks:
            if len(chunk) % 2:
                reader.keep(chunk)
            else:
                steps.append(reader.step(chunk))
        while reader.has_more:
            steps.append(reader.step(b"", has_turn=reader.wants_turn))
    except PacketError as error:
        return [*steps, list(reader.before_damage)], error.reason_code
    return steps, None


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[left:right] for left, right in itertools.pairwise(edges) if left < right]


PLACES = st.lists(st.integers(0, 1 << 20), max_size=12)


@pytest.mark.parametrize("level", [3, 4, 5])
@settings(max_examples=25)
@given(data=st.data(), places=PLACES)
def test_any_cutting_of_a_stream_gives_the_packets_that_were_written(
    level: int, data: st.DataObject, places: list[int]
) -> None:
    packets = data.draw(streams(level))
    stream = b"".join(codec.encode(packet, level) for packet in packets)
    assert feed(cut(stream, places)) == (packets, None, 0)
    assert (
        feed([stream[at : at + 1] for at in range(min(len(stream), 3000))])[0]
        == packets[: len(feed([stream[:3000]])[0])]
    )


@pytest.mark.parametrize("level", [3, 4, 5])
@settings(max_examples=25)
@given(data=st.data(), damage=st.sampled_from([b"", b"\x00\x00"]), places=PLACES)
def test_steps_give_the_same_packets_and_end_with_those_that_others_may_have_to_wait_for(
    level: int, data: st.DataObject, damage: bytes, places: list[int]
) -> None:
    stream = b"".join(codec.encode(packet, level) for packet in data.draw(streams(level))) + damage
    whole, end, _ = feed([stream])
    steps, seen = stepped(cut(stream, places))
    assert ([one for step in steps for one in step], seen) == (whole, end)
    assert not [one for step in steps for one in step[:-1] if isinstance(one, WAITED_FOR)]
    assert not [step for step in steps if len(step) > 1 and isinstance(step[-1], Subscribe | Unsubscribe)]


def test_what_a_step_leaves_is_held_as_bytes_and_only_that() -> None:
    subscribe = codec.encode(Subscribe(1, (Subscription("x" * 5000),)), 4)
    publish = codec.encode(Publish("a", bytes(100)), 4)
    reader = PacketReader(LIMIT)
    reader.level = 4
    assert reader.step(subscribe + publish + publish[:50]) == []
    assert (reader.has_more, reader.wants_turn) == (True, True)
    assert reader.pending == len(subscribe) + len(publish) + 50
    assert len(reader.step(b"", has_turn=True)) == 1
    assert (reader.has_more, reader.pending) == (True, len(publish) + 50)
    reader.keep(publish[50:] + publish[:1])
    assert (reader.has_more, reader.pending) == (True, 2 * len(publish) + 1)
    assert reader.step(b"") == [Publish("a", bytes(100))] * 2
    assert (reader.has_more, reader.pending) == (False, 1)


@settings(max_examples=75)
@given(
    st.sampled_from([0, 3, 4, 5]),
    st.lists(
        st.one_of(st.binary(max_size=12), st.sampled_from([b"\x30\x03\x00\x01a", b"\xc0\x00", b"\x40\x02\x00\x01"]))
    ),
    PLACES,
)
def test_any_cutting_of_any_bytes_gives_the_same_packets_and_the_same_end(
    level: int, parts: list[bytes], places: list[int]
) -> None:
    stream = b"".join(parts)
    whole = feed([stream] if stream else [], level)
    assert feed(cut(stream, places), level) == whole
    assert feed([stream[at : at + 1] for at in range(len(stream))], level) == whole


def test_the_limit_before_the_connect_is_smaller_and_ends_with_it() -> None:
    connect = codec.encode(Connect("c", password=b"p", user_name="u" * 50), 4)
    large = codec.encode(Publish("a", bytes(500)), 4)
    assert feed([connect + large], limit=1000, connect_limit=100)[1] is None
    assert feed([connect], limit=1000, connect_limit=50)[1] == 0x95
    assert feed([connect, large], limit=400, connect_limit=100) == ([codec.decode(16, connect[2:], 4)], 0x95, 0)


@pytest.mark.parametrize(
    ("length", "encoded"),
    [
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (268_435_455, "ffffff7f"),
    ],
)
def test_a_limit_is_exact_for_lengths_of_every_size(length: int, encoded: str) -> None:
    head = b"\x30" + bytes.fromhex(encoded)
    size = len(head) + length
    assert feed([head], 4, limit=size) == ([], None, len(head))
    assert feed([head], 4, limit=size - 1) == ([], 0x95, 0)


def test_an_announced_length_allocates_nothing() -> None:
    readers = [PacketReader(1 << 29) for _ in range(100)]
    tracemalloc.start()
    try:
        for reader in readers:
            reader.level = 4
            reader.receive(b"\x30\xff\xff\xff\x7f\x00\x01a")
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 100 * 1024
    assert {reader.pending for reader in readers} == {8}


@pytest.mark.interpreted
def test_a_packet_that_comes_in_many_pieces_is_looked_at_once() -> None:
    looked_at: list[int] = []

    class Watched(PacketReader):
        def _cut(self, data: bytes, at: int, packets: list[Packet], has_turn: bool) -> int:
            looked_at.append(len(data) - at)
            return super()._cut(data, at, packets, has_turn)

    packet = codec.encode(Publish("a", bytes(50_000)), 4)
    reader = Watched(LIMIT)
    reader.level = 4
    got = [one for at in range(len(packet)) for one in reader.receive(packet[at : at + 1])]
    assert got == [Publish("a", bytes(50_000))]
    assert sum(looked_at) < len(packet) + 20


def test_an_idle_reader_holds_no_buffer() -> None:
    reader = PacketReader(LIMIT)
    reader.level = 4
    assert reader.receive(codec.encode(Publish("a", bytes(5000)), 4)[:100]) == []
    assert reader.pending == 100
    reader.receive(codec.encode(Publish("a", bytes(5000)), 4)[100:])
    assert reader.pending == 0
    assert reader._rest is None


def test_runs_of_acknowledgements_come_out_in_order() -> None:
    run = [Puback(packet_id) for packet_id in (1, 255, 256, 65_535)]
    assert feed([b"".join(codec.encode(one, 5) for one in run)], 5) == (run, None, 0)


# ---------------------------------------------------------------- mutated packets


@pytest.mark.parametrize("level", [3, 4, 5])
def test_mutated_packets_give_packets_or_a_reason_code_and_nothing_else(level: int) -> None:
    rng = random.Random(level)
    legal = corpus(level)
    refused = 0
    for _ in range(MUTATED_PACKETS // 3):
        stream = mutated(rng, legal)
        packets, reason_code, _ = feed([stream], level if stream[:1] != b"\x10" else 0)
        refused += reason_code is not None
        assert reason_code in (None, 0x81, 0x82, 0x84, 0x95, 0x97)
        for packet in packets:
            at_level = packet.level if isinstance(packet, Connect) else level
            assert feed([codec.encode(packet, at_level)], 0 if isinstance(packet, Connect) else at_level)[0] == [packet]
    assert refused > MUTATED_PACKETS // 12
