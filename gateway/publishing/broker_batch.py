"""A batch on its way to a broker: publications, their devices, and how they are gathered.

``upstream.py`` decides when a batch leaves, and handles the broker's answer.
"""

from __future__ import annotations

import zlib
from collections import deque
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from gateway.brokers import Broker
from gateway.messages.envelope import record_properties
from gateway.net.ends import Occupant
from penstock.errors import PenstockError
from penstock.protocol.message import record_tail
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.topics import DescribeTopic
from penstock.protocol.runs import Run

NONE: Final[tuple[str, ...]] = ()


@mypyc_attr(allow_interpreted_subclasses=True)
class Publisher(Occupant):
    """Publisher of a record that waits for its fate (``gateway.connections.device.Device``,
    ``gateway.connections.wills.Executor``, which is on no line).

    Attributes:
        unstored: bytes of its records that the brokers have not answered for.
        kept: how many of its records wait in ``BrokerBatch.kept``; they are not among these bytes.
        sequence: the number of the next record that it wants acknowledged. Each such record has the next number, so
            that its acknowledgements can leave in the order of its PUBLISHes.
        is_v5: whether it can be told reasons.
        is_over: whether its connection is over, so that it hears nothing any more.
    """

    __slots__ = ("is_over", "is_v5", "kept", "sequence", "unstored")
    unstored: int
    kept: int
    sequence: int
    is_v5: bool
    is_over: bool

    def stored(self, first: int, marks: list[bytes], size: int, exact: bool) -> None:
        """Records of a number of bytes are stored: their marks may leave. ``first``: the number of the first one that
        has a mark; the others that have one follow it. ``exact``: there are PUBRECs among them."""
        raise NotImplementedError

    def stored_one(self, first: int, mark: bytes, size: int) -> None:
        """The same of one record without a PUBREC."""
        self.stored(first, [mark], size, False)

    def answered(self, size: int) -> None:
        """A number of bytes of its records are no longer unstored: they are refused, lost, or kept."""
        raise NotImplementedError

    def refused(self, first: int, mark: bytes, code: int, why: str = "") -> None:
        """One record is not stored, for this error, and not repeated; the caller counts it. ``why``: the
        error's words, where they are known."""
        raise NotImplementedError

    def ask_to_make(self, topic: str) -> DescribeTopic | PenstockError:
        """The request with which a topic that no broker has is made for it, or why it is not made."""
        raise NotImplementedError

    def fate_unknown(self, marks: list[bytes]) -> None:
        """It is unknown whether these records are stored."""
        raise NotImplementedError

    def hold_reading(self) -> None:
        """One more reason not to read from it."""
        raise NotImplementedError

    def release_reading(self) -> None:
        """One less."""
        raise NotImplementedError


class Kept(NamedTuple):
    """A publication that its broker surely has not stored. ``number``: of the batch that it was last in. ``first``: its
    number among those of its device."""

    device: Publisher
    run: Run
    mark: bytes
    number: int
    first: int


class BrokerBatch:
    """The open batch of one broker. ``devices``: whose each of ``runs`` is; ``firsts``: the number that its device has
    given to its first message; ``marks``: one per message of them, in order. ``size``: bytes of their records.
    ``kept``: what is to be tried again. ``returned``: batches that wait for another epoch of this gateway, or for the
    answers of those before them. ``told``: the epochs that its broker was told to be over. ``unanswered``: batches that
    it has not answered. ``waits``: nothing leaves until there are none, because it stores nothing of them and they are
    to go first: it had no room, or the gateway's epoch is over. ``attempt``: how often that was."""

    __slots__ = (
        "attempt",
        "broker",
        "devices",
        "firsts",
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
        self.firsts: list[int] = []
        self.kept: list[Kept] = []
        self.returned: list[Batch] = []
        self.told: tuple[str, ...] = NONE
        self.attempt = 0
        self.waits = False
        self.unanswered = 0
        self.size = 0

    def keep(self, device: Publisher, run: Run, marks: list[bytes], number: int, first: int) -> None:
        """Messages of a run are tried again later; their device is not read until then."""
        for at, mark in enumerate(marks):
            self.keep_one(device, run.of([run.bodies[at]]), mark, number, first + at)
        device.answered(run.size)

    def keep_one(self, device: Publisher, run: Run, mark: bytes, number: int, first: int) -> None:
        """The same of one message, whose bytes count as unstored until its device gets the answer."""
        device.kept += 1
        device.hold_reading()
        self.kept.append(Kept(device, run, mark, number, first))


@mypyc_attr(allow_interpreted_subclasses=True)
class Batch:
    """Publications that a lane had gathered. ``number`` grows from one to the next. ``epoch``, ``attempt``: it was sent
    with. ``began``: when its messages were read."""

    __slots__ = ("attempt", "began", "devices", "epoch", "firsts", "lane", "marks", "number", "runs")

    def __init__(self, lane: BrokerBatch, number: int, began: float) -> None:
        self.lane = lane
        self.number = number
        self.began = began
        self.epoch = ""
        self.attempt = 0
        self.runs = lane.runs
        self.marks = lane.marks
        self.devices = lane.devices
        self.firsts = lane.firsts

    def __call__(self, result: Result) -> None:
        """It is answered."""
        raise NotImplementedError

    def drop_absent(self) -> int:
        """Leaves out what is of connections that are over; returns how many messages that were."""
        runs, marks, devices, firsts = self._take_apart()
        at = 0
        for run, device, first in zip(runs, devices, firsts, strict=True):
            stop = at + len(run.bodies)
            if device is None or not device.is_over:
                self._add(run, marks[at:stop], device, first)
            at = stop
        return len(marks) - len(self.marks)

    def _take_apart(self) -> tuple[list[Run], list[bytes], list[Publisher | None], list[int]]:
        parts = self.runs, self.marks, self.devices, self.firsts
        self.runs, self.marks, self.devices, self.firsts = [], [], [], []
        return parts

    def _add(self, run: Run, marks: list[bytes], device: Publisher | None, first: int) -> None:
        self.runs.append(run)
        self.marks += marks
        self.devices.append(device)
        self.firsts.append(first)

    def queue_up(self) -> None:
        """Leaves out what is to be acknowledged of those who have something kept in the lane, and puts it behind that:
        else it would overtake it."""
        waiting = {kept.device for kept in self.lane.kept}
        runs, marks, devices, firsts = self._take_apart()
        at = 0
        for run, device, first in zip(runs, devices, firsts, strict=True):
            stop = at + len(run.bodies)
            if device is not None and device in waiting and marks[at]:
                self.lane.keep(device, run, marks[at:stop], self.number, first)
            else:
                self._add(run, marks[at:stop], device, first)
            at = stop


class Unplaced(NamedTuple):
    """A publication on its way to its topic's broker, which may not be known yet. ``first``: its number among those of
    its device."""

    device: Publisher | None
    run: Run
    mark: bytes
    first: int


class ClientQueue:
    """The publications of one client that wait, in their order: the first one for its topic (``placing.py``)."""

    __slots__ = ("client_id", "items")

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.items: deque[tuple[NameRoute, Unplaced]] = deque()


class TopicLanes:
    """The brokers of one topic; none while they are being looked up. ``waiting``: the queues with something for it, in
    order; while it holds one a look-up is out, or comes with the next ``retry``. ``is_used``: something was published
    there since that was last asked. ``reserve``: the brokers before they were forgotten."""

    __slots__ = ("is_used", "lanes", "name", "reserve", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lanes: list[BrokerBatch] = []
        self.waiting: dict[ClientQueue, None] = {}
        self.is_used = False
        self.reserve: list[BrokerBatch] = []

    def lead_to(self, lanes: list[BrokerBatch]) -> None:
        """The topic has these brokers."""
        self.lanes, self.reserve = lanes, []

    def forget(self) -> None:
        """A broker does not have the topic: it is to be looked up anew."""
        self.lanes, self.reserve = [], []

    def sweep(self) -> None:
        """Its brokers are to be looked up anew if nothing was published there since this was last called."""
        if not self.is_used and self.lanes:
            self.lanes, self.reserve = [], self.lanes
        self.is_used = False

    def take_waiting(self) -> dict[ClientQueue, None]:
        """The queues that have waited for its brokers, which do so no more."""
        waiting, self.waiting = self.waiting, {}
        return waiting


class NameRoute:
    """The constant parts of a client's publications under one name. ``raw_name``: as it says it, without ``mount``."""

    __slots__ = ("client_id", "key", "key_hash", "name", "raw_name", "tail", "topic", "topic_bytes")

    def __init__(self, name: str, client_id: str, key: str, topic: TopicLanes, mount: str = "") -> None:
        self.name = name
        self.client_id = client_id
        self.raw_name = name[len(mount) :].encode()
        self.key = key
        self.key_hash = zlib.crc32(key.encode())
        self.topic = topic
        self.topic_bytes = topic.name.encode()
        self.tail = record_tail(self.topic_bytes, record_properties(name, key, client_id))

    def lane(self) -> BrokerBatch | None:
        self.topic.is_used = True
        lanes = self.topic.lanes
        if len(lanes) == 1:
            return lanes[0]
        # the broker takes the hash modulo its queues: other bits choose the broker, so that all queues are used
        return lanes[(self.key_hash >> 16) % len(lanes)] if lanes else None
