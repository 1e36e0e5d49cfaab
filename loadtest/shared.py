"""One publisher and the members of a shared subscription, who divide its messages between them.

Whoever gets a message, it must come once to one of them: what comes is looked up among what is on its way.
The rate is that of all members together; ``least_share`` is how much the member with the fewest has of an equal share.
"""

from __future__ import annotations

import select
import struct
from typing import Final

from loadtest.generator import Connection, Delivered, Order, Outcome, Publisher, Run
from loadtest.packets import SEQUENCE_BYTES, Ring
from loadtest.wires import Failed, Wire

RING_PACKETS: Final = 4096


class Group(Delivered):
    """What the members have together; the publisher waits for it as for one subscriber."""

    __slots__ = ("_on_their_way", "_ring", "_sent_at")

    def __init__(self, publisher: Publisher, ring: Ring) -> None:
        super().__init__(publisher)
        self._ring = ring
        self._on_their_way: set[int] = set()
        self._sent_at = [0.0] * ring.count

    def expect(self, first: int, count: int, at: float) -> None:
        """So many messages are sent, from this one on."""
        numbers = [number % self._ring.count for number in range(first, first + count)]
        self._on_their_way.update(numbers)
        for number in numbers:
            self._sent_at[number] = at

    def take(self, packets: bytearray, now: float) -> int:
        """Some member got whole packets; how many. Takes their ids and numbers out in place."""
        ring, count = self._ring, len(packets) // self._ring.size
        columns = bytearray(SEQUENCE_BYTES * count)
        for place in range(SEQUENCE_BYTES):
            columns[place::SEQUENCE_BYTES] = packets[ring.id_at + 2 + place :: ring.size]
            packets[ring.id_at + 2 + place :: ring.size] = bytes(count)
        numbers = struct.unpack(f">{count}I", columns)
        packets[ring.id_at :: ring.size] = packets[ring.id_at + 1 :: ring.size] = bytes(count)
        if packets != ring.deliveries[: ring.size] * count:
            raise Failed(f"this is no delivery of what was published: {bytes(packets[:48]).hex(' ')}")
        if len(set(numbers)) < count or not self._on_their_way.issuperset(numbers):
            raise Failed(f"messages came twice, or were never sent, among {sorted(numbers)[:8]}")
        self._on_their_way.difference_update(numbers)
        self.latencies += [(now - self._sent_at[number], 1) for number in numbers]
        self.received += count
        return count


class GroupPublisher(Publisher):
    """A publisher that tells the group what to expect."""

    __slots__ = ("group",)

    def __init__(self, wire: Wire, poll: select.epoll, order: Order, ring: Ring) -> None:
        super().__init__(wire, poll, order, ring)
        self.group = Group(self, ring)

    def publish(self, count: int, at: float) -> None:
        self.group.expect(self.sent, count, at)
        super().publish(count, at)


class Member(Connection):
    """Receives, checks and acknowledges what the server gives it."""

    __slots__ = ("_group", "_rest", "received")

    def __init__(self, wire: Wire, poll: select.epoll, group: Group) -> None:
        super().__init__(wire, poll)
        self._group = group
        self._rest = b""
        self.received = 0

    def receive(self, data: bytes, now: float) -> None:
        ring = self._group.publisher.ring
        data = self._rest + data
        whole = bytearray(data[: len(data) // ring.size * ring.size])
        self._rest = data[len(whole) :]
        if whole:
            acks = ring.acks_of(whole)
            self.received += self._group.take(whole, now)
            self.send(acks)


class Shared(Run):
    """One run with a shared subscription; ``subscribers`` of its order are the members."""

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._members: list[Member] = []

    def perform(self) -> Outcome:
        outcome = super().perform()
        equal = sum([member.received for member in self._members]) / len(self._members)
        outcome.figures = {"least_share": min([member.received for member in self._members]) / equal}
        return outcome

    def _connect(self) -> None:
        order, topic = self._order, f"shared/{self._order.run}"
        ring = Ring(topic, order.payload_bytes, RING_PACKETS)
        publisher = GroupPublisher(self._open("pub", [topic])[0], self._poll, order, ring)
        self._add(publisher)
        self._deliveries.append(publisher.group)
        names = [f"{topic}/{number}" for number in range(order.subscribers)]
        self._members = [
            Member(wire, self._poll, publisher.group)
            for wire in self._open("sub", names, [f"$share/load/{topic}"] * len(names))
        ]
        for member in self._members:
            self._add(member)
