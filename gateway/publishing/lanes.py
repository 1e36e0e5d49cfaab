"""What is on its way to a broker: publications, whose they are, and how they are gathered into batches.

Nothing here decides when something leaves, or is told of what became of it: that is ``upstream.py``'s.
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from gateway.brokers import Broker
from gateway.messages.envelope import record_properties
from gateway.shards.ends import Occupant
from penstock.message import record_tail
from penstock.requests.request import Result
from penstock.runs import Run

NONE: Final[tuple[str, ...]] = ()


@mypyc_attr(allow_interpreted_subclasses=True)
class Publisher(Occupant):
    """Who has published a record and waits for its fate (``gateway.devices.device.Device``,
    ``gateway.homes.wills.Executor``, which is on no line).

    Attributes:
        unstored: bytes of its records, and of filters that it asked for, that the brokers have not answered for.
        is_v5: whether it can be told reasons.
        is_over: whether its connection is over, so that it hears nothing any more.
    """

    __slots__ = ("is_over", "is_v5", "unstored")
    unstored: int
    is_v5: bool
    is_over: bool

    def stored(self, marks: list[bytes], size: int, exact: bool) -> None:
        """Records are stored: their marks may leave. ``exact``: there are PUBRECs among them."""
        raise NotImplementedError

    def stored_one(self, mark: bytes, size: int) -> None:
        """The same of one record without a PUBREC."""
        self.stored([mark], size, False)

    def refused(self, mark: bytes, code: int) -> None:
        """One record is not stored, for this error, and not tried again; whoever gives it up counts it."""
        raise NotImplementedError

    def fate_unknown(self, marks: list[bytes]) -> None:
        """Nobody knows whether these records are stored."""
        raise NotImplementedError

    def hold_reading(self) -> None:
        """One more reason not to read from it."""
        raise NotImplementedError

    def release_reading(self) -> None:
        """One less."""
        raise NotImplementedError


class Kept(NamedTuple):
    """A publication that its broker surely has not stored. ``number``: of the batch that it was last in."""

    device: Publisher
    run: Run
    mark: bytes
    number: int


class Lane:
    """The open batch of one broker. ``devices``: whose each of ``runs`` is; ``marks``: one per message of them, in
    order. ``size``: bytes of their records. ``kept``: what is to be tried again. ``returned``: batches that wait for
    another life of this gateway, or for the answers of those before them. ``told``: the lives that its broker was told
    to be over. ``unanswered``: batches that it has not answered. ``waits``: nothing leaves until there are none,
    because it stores nothing of them and they are to go first: it had no room, or the gateway's life is over.
    ``attempt``: how often that was."""

    __slots__ = (
        "attempt",
        "broker",
        "devices",
        "kept",
        "marks",
        "returned",
        "runs",
        "size",
        "told",
        "unanswered",
        "waits",
    )

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.runs: list[Run] = []
        self.marks: list[bytes] = []
        self.devices: list[Publisher | None] = []
        self.kept: list[Kept] = []
        self.returned: list[Batch] = []
        self.told: tuple[str, ...] = NONE
        self.attempt = 0
        self.waits = False
        self.unanswered = 0
        self.size = 0

    def keep(self, device: Publisher, run: Run, marks: list[bytes], number: int) -> None:
        """Messages of a run are tried again later; their device is not read until then."""
        device.stored([], run.size, False)  # they count as unstored no more
        for body, mark in zip(run.bodies, marks, strict=True):
            device.hold_reading()
            self.kept.append(Kept(device, run.of([body]), mark, number))


@mypyc_attr(allow_interpreted_subclasses=True)
class Batch:
    """What a lane had gathered. ``number``: grows from one to the next. ``life``, ``attempt``: in which it was sent."""

    __slots__ = ("attempt", "devices", "lane", "life", "marks", "number", "runs")

    def __init__(self, lane: Lane, number: int) -> None:
        self.lane = lane
        self.number = number
        self.life = ""
        self.attempt = 0
        self.runs = lane.runs
        self.marks = lane.marks
        self.devices = lane.devices

    def __call__(self, result: Result) -> None:
        """It is answered."""
        raise NotImplementedError

    def drop_absent(self) -> int:
        """Leaves out what is of connections that are over; returns how many messages that were."""
        runs, marks, devices = self.runs, self.marks, self.devices
        self.runs, self.marks, self.devices = [], [], []
        at = 0
        for run, device in zip(runs, devices, strict=True):
            stop = at + len(run.bodies)
            if device is None or not device.is_over:
                self.runs.append(run)
                self.marks += marks[at:stop]
                self.devices.append(device)
            at = stop
        return len(marks) - len(self.marks)

    def queue_up(self) -> None:
        """Leaves out what is to be acknowledged of those who have something kept in the lane, and puts it behind that:
        else it would overtake it."""
        waiting = {kept.device for kept in self.lane.kept}
        runs, marks, devices = self.runs, self.marks, self.devices
        self.runs, self.marks, self.devices = [], [], []
        at = 0
        for run, device in zip(runs, devices, strict=True):
            stop = at + len(run.bodies)
            if device is not None and device in waiting and marks[at]:
                self.lane.keep(device, run, marks[at:stop], self.number)
            else:
                self.runs.append(run)
                self.marks += marks[at:stop]
                self.devices.append(device)
            at = stop


class Unplaced(NamedTuple):
    """A publication on its way to its topic's broker, which may not be known yet."""

    device: Publisher | None
    run: Run
    mark: bytes


class TopicLanes:
    """The brokers of one topic; none while they are being looked up. ``waiting``: what is to go there then, in order;
    while it holds something a look-up is out, or comes with the next ``retry``."""

    __slots__ = ("lanes", "topic", "waiting")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.lanes: list[Lane] = []
        self.waiting: list[tuple[NameRoute, Unplaced]] = []


class NameRoute:
    """The constant parts of a client's publications under one name."""

    __slots__ = ("key", "key_hash", "name", "raw_name", "tail", "topic", "topic_bytes")

    def __init__(self, name: str, client_id: str, key: str, topic: TopicLanes) -> None:
        self.name = name
        self.raw_name = name.encode()
        self.key = key
        self.key_hash = zlib.crc32(key.encode())
        self.topic = topic
        self.topic_bytes = topic.topic.encode()
        self.tail = record_tail(self.topic_bytes, record_properties(name, key, client_id))

    def lane(self) -> Lane | None:
        lanes = self.topic.lanes
        if len(lanes) == 1:
            return lanes[0]
        # the broker takes the hash modulo its queues: other bits choose the broker, so that all queues are used
        return lanes[(self.key_hash >> 16) % len(lanes)] if lanes else None
