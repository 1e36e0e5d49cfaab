"""Damaged packets without end, on whole connections: nobody crashes, nothing leaks, no neighbour waits; and how the
bytes are cut makes no difference. ``PENSTOCK_FUZZ_PACKETS`` says how many; ``make soak`` takes a million."""

from __future__ import annotations

import gc
import os
import random
import tracemalloc
from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rig import Client, Gateway

from gateway.connections.device import Device
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Connect, Disconnect, Packet, Publish, Will
from gateway.sessions.session import Session
from tests.gateway.mqtt.mutation import corpus, mutated
from tests.gateway.mqtt.packet_strategies import after_connect

PACKETS = int(os.environ.get("PENSTOCK_FUZZ_PACKETS", "4000"))
PER_CONNECTION = 10
LEVELS = (3, 4, 5)


class Deaf(Client):
    """A client that does not look at what it is sent; it may not even be of its level."""

    def write(self, data: bytes) -> None:
        assert not self.is_closed, "written after the close"


class Flood:
    """Hostile connections to one gateway, and a bystander."""

    def __init__(self) -> None:
        self.gateway = Gateway(session_expiry_s_max=5)
        self.bystander = self.gateway.connect("bystander")
        self.bystander.subscribe("bystander")
        self.rng = random.Random(1)
        self.legal = {level: corpus(level) for level in LEVELS}
        self.number = 0

    def run(self, packets: int) -> None:
        """So many packets; then everything that they have left has had its time."""
        left, at = packets, 0
        while left > 0:
            left -= self.connection()
            at += 1
            if at % 50 == 0:
                self.the_bystander_is_served()
        self.gateway.pass_time(90)
        self.gateway.broker.requests.clear()
        self.the_bystander_is_served()

    def connection(self) -> int:
        """One connection, as long as it lasts; returns how many damaged packets it was sent."""
        rng = self.rng
        level = rng.choice(LEVELS)
        client = Deaf(self.gateway, level, "127.0.0.1")
        if rng.random() < 0.9:
            will = Will("w", b"x") if rng.random() < 0.2 else None
            client.send(Connect(f"c{rng.randrange(50)}", rng.random() < 0.5, will=will, level=level))
        sent = 0
        while sent < PER_CONNECTION and not client.is_closed:
            client.send_bytes(mutated(rng, self.legal[level]) or b"\0")
            sent += 1
        if not client.is_closed:
            client.cut()
        return sent

    def the_bystander_is_served(self) -> None:
        self.number += 1
        self.bystander.publish("bystander", b"%d" % self.number)
        assert self.bystander.payloads() == [b"%d" % self.number]

    def left(self) -> tuple[int, int, int, int]:
        """Connections, half-open ones, and how many objects of devices and sessions there are."""
        gc.collect()
        kinds = [type(one) for one in gc.get_objects()]
        connections = self.gateway.connections
        return len(connections), connections.half_open, kinds.count(Device), kinds.count(Session)


@pytest.mark.mqtt("4.13.1-1", old=("4.8.0-1",))
def test_damaged_packets_crash_nothing_leave_nothing_and_hold_up_nobody() -> None:
    flood = Flood()
    before = flood.left()
    flood.run(PACKETS * 8 // 10)
    assert flood.left() == before
    tracemalloc.start()
    try:
        flood.run(PACKETS // 10)
        gc.collect()
        first = tracemalloc.get_traced_memory()[0]
        flood.run(PACKETS // 10)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - first < 1 << 20
    finally:
        tracemalloc.stop()
    assert flood.left() == before


UNORDERED = ("Suback", "Unsuback")
"""A refusal is known before what a broker has to open first; the standard asks for no order among these."""


class Outcome(NamedTuple):
    """What a stream leads to: what is stored, each kind of answer in its order, and how it ends."""

    stored: list[bytes]
    answers: dict[str, list[Packet]]
    farewell: list[Packet]
    is_closed: bool


def outcome(level: int, pieces: list[bytes]) -> Outcome:
    gateway = Gateway()
    client = gateway.open(level)
    for piece in pieces:
        if not client.is_closed:
            client.send_bytes(piece)
    answers: dict[str, list[Packet]] = {}
    for packet in client.got():
        if not isinstance(packet, Publish):
            answers.setdefault(type(packet).__name__, []).append(packet)
    farewell = answers.pop("Disconnect", [])
    return Outcome(gateway.broker.bodies(), answers, farewell, client.is_closed)


@settings(max_examples=int(os.environ.get("PENSTOCK_FUZZ_SEQUENCES", "60")))
@given(data=st.data(), level=st.sampled_from(LEVELS))
def test_however_a_stream_is_cut_the_same_comes_of_it(data: st.DataObject, level: int) -> None:
    packets = data.draw(st.lists(after_connect(level).filter(lambda one: type(one) is not Disconnect), max_size=5))
    stream = encode(Connect("c", level=level), level) + b"".join(encode(packet, level) for packet in packets)
    stream += data.draw(st.binary(max_size=6))
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    pieces = [stream[start:stop] for start, stop in zip([0, *places], [*places, len(stream)], strict=True)]
    cut, whole = outcome(level, [piece for piece in pieces if piece]), outcome(level, [stream])
    assert (cut.stored, cut.farewell, cut.is_closed) == (whole.stored, whole.farewell, whole.is_closed)
    for kind, answers in whole.answers.items():  # what a broker has not answered when the line closes is not said
        found = cut.answers.get(kind, [])
        if kind in UNORDERED:
            assert Counter(map(repr, answers)) <= Counter(map(repr, found))
        else:
            assert found[: len(answers)] == answers
    sizes = [{kind: len(answers) for kind, answers in one.answers.items()} for one in (cut, whole)]
    assert whole.is_closed or sizes[0] == sizes[1]
