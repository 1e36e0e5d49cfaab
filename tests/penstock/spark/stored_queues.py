"""Queues in memory that are served over the wire: retention, damage and outages happen when a test says so.

One server plays name server and broker. It keeps the promises of penstock/requests that the Spark source relies on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from penstock.errors import Fenced, LogReplaced, NoRoute, OffsetOutOfRange, PenstockError, TopicNotFound, UnknownRequest
from penstock.protocol.link import OnResult
from penstock.protocol.message import (
    ENTRY,
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    FRAME_MAGIC,
    OFFSETS,
    OFFSETS_AT,
    STORED,
    STORED_AT,
    Message,
    encode_message,
)
from penstock.protocol.requests.groups import CommitOffsets
from penstock.protocol.requests.messages import BoundsReply, OffsetReply, Pull, Pulled, QueryBounds, SeekTime
from penstock.protocol.requests.request import Done, Request, Result
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, QueryTopics, Route, TopicNames
from penstock.protocol.requests.topics import Bounds, DescribeTopic, TopicDetail
from penstock.service.frame_server import Peer, Session
from tests.patience import PATIENCE_S

BROKER = "broker-a"
STORED_MS = 1_700_000_000_000


def frame_of(message: Message, queue: int, offset: int, position: int, stored_ms: int) -> bytes:
    """A log frame as a broker stores it."""
    record = bytearray(encode_message(message, queue_id=queue, born_ms=stored_ms - 5))
    OFFSETS.pack_into(record, OFFSETS_AT, offset, position)
    STORED.pack_into(record, STORED_AT, stored_ms, bytes(8))
    return FRAME_HEAD.pack(0, FRAME_MAGIC, FRAME_HEAD_BYTES + len(record), 1, 0) + bytes(record)


def batch_of(frames: Sequence[bytes], first: int = 0) -> bytes:
    """The body of a pull's reply."""
    entries = [ENTRY.pack(first + at, 1000 * (first + at), len(frame), 0) for at, frame in enumerate(frames)]
    return b"".join([*entries, *frames])


class StoredQueue:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.min = self.first = 0
        self.damaged: set[int] = set()


class StoredQueues:
    """Topics, their queues, and what clients asked."""

    def __init__(self) -> None:
        self.address = ""
        self.log_id = "log-1"
        self.is_registered = True
        self.members = False  # whether groups have members
        self.committed: dict[tuple[str, str], int] = {}
        self.away: tuple[str, ...] = ()  # other brokers that the name server misses
        self.leader = ""  # address of the node that leads; empty: this one, which is the only copy
        self.readers: tuple[str, ...] = ()  # addresses of copies, where this node leads
        self.on_asked: Callable[[Request], None] = lambda request: None
        self.topics: dict[str, list[StoredQueue]] = {}
        self.gone: dict[str, list[StoredQueue]] = {}  # topics that were deleted
        self.asked: list[Request] = []
        self.errors: list[PenstockError] = []  # answered to the next pulls, one each
        self._was_asked = threading.Condition()

    def open_session(self, peer: Peer) -> Session:
        return _Answers(self)

    def create(self, topic: str, queues: int = 1) -> None:
        have = self.topics.setdefault(topic, [])
        if topic in self.gone:
            have += self.gone.pop(topic)[:queues]
        have += [StoredQueue() for _ in range(queues - len(have))]

    def put(self, topic: str, queue: int, messages: int | Sequence[Message], stored_ms: int = STORED_MS) -> None:
        """Stores messages, a second apart; a number stands for as many plain ones."""
        self.create(topic, queue + 1)
        frames = self.topics[topic][queue].frames
        if isinstance(messages, int):
            messages = [Message(topic, b"%d" % (len(frames) + at)) for at in range(messages)]
        for message in messages:
            offset = len(frames)
            frames.append(frame_of(message, queue, offset, 1000 * offset, stored_ms + 1000 * offset))

    def remove_before(self, topic: str, queue: int, offset: int) -> None:
        """What retention does."""
        self.topics[topic][queue].min = offset

    def delete(self, topic: str) -> None:
        """The topic goes; made again it begins where it ended."""
        self.gone[topic] = self.topics.pop(topic)
        for queue in self.gone[topic]:
            queue.first = queue.min = len(queue.frames)

    def wipe(self) -> None:
        """Another, empty data folder stands in place of this one."""
        self.topics = {}
        self.log_id = f"log-{int(self.log_id.rpartition('-')[2]) + 1}"

    # -- answers

    def pulls(self, count: int) -> list[int]:
        """The offsets that were pulled, once there are ``count`` of them: this server runs in a thread of its own."""
        with self._was_asked:
            self._was_asked.wait_for(lambda: len(self._pulled()) >= count, timeout=PATIENCE_S)
            return self._pulled()

    def _pulled(self) -> list[int]:
        return [one.offset for one in self.asked if isinstance(one, Pull)]

    def answer(self, request: Request) -> Result:
        with self._was_asked:
            self.asked.append(request)
            self._was_asked.notify_all()
        self.on_asked(request)
        match request:
            case QueryTopics():
                topics = tuple(sorted(self.topics))
                return TopicNames(topics, (), self.away) if self.is_registered else TopicNames((), topics, (BROKER,))
            case QueryRoute(topic):
                have = len(self.topics.get(topic, ())) if topic else 1
                if have and not self.is_registered:
                    return NoRoute(f"topic {topic!r} is at broker {BROKER}, which is away") if topic else Route(())
                route = BrokerRoute(BROKER, self.address, have, readers=self.readers)
                if self.leader:
                    route = route._replace(address=self.leader, epoch=3, readers=(self.address,))
                return Route((route,) if have else (), self.away)
            case DescribeTopic(topic):
                if request.gone and topic in self.gone:
                    ends = [queue.first for queue in self.gone[topic]]
                    bounds = [Bounds(f"{topic}:{number}", end, end, end) for number, end in enumerate(ends)]
                    return TopicDetail(topic, 0, "", tuple(bounds), self.log_id)
                if topic not in self.topics:
                    return TopicNotFound(f"no topic {topic}")
                names = [f"{topic}:{number}" for number in range(len(self.topics[topic]))]
                return TopicDetail(topic, len(names), "disk", tuple(map(self._bounds, names)), self.log_id)
            case QueryBounds(names):
                return BoundsReply(tuple(map(self._bounds, names)))
            case CommitOffsets():
                if self.members:
                    return Fenced(f"group {request.group} has members; its offsets are theirs")
                self.committed |= {(request.group, one.queue): one.offset for one in request.offsets}
                return Done()
            case SeekTime(name, stored_ms):
                return OffsetReply(self._seek(name, stored_ms))
            case Pull():
                return self.errors.pop(0) if self.errors else self._pull(request)
        return UnknownRequest(type(request).__name__)

    def _queue(self, name: str) -> StoredQueue:
        topic, _, number = name.rpartition(":")
        return self.topics[topic][int(number)]

    def _bounds(self, name: str) -> Bounds:
        queue = self._queue(name)
        return Bounds(name, queue.min, len(queue.frames), queue.first)

    def _seek(self, name: str, stored_ms: int) -> int:
        frames = self._queue(name).frames
        times = [STORED.unpack_from(frame, FRAME_HEAD_BYTES + STORED_AT)[0] for frame in frames]
        return next((at for at, one in enumerate(times) if one >= stored_ms), len(frames))

    def _pull(self, request: Pull) -> Result:
        if request.log_id not in ("", self.log_id):
            return LogReplaced(f"offset {request.offset} is of log {request.log_id}")
        queue = self._queue(request.queue)
        if not queue.min <= request.offset <= len(queue.frames):
            return OffsetOutOfRange(f"{request.queue}: {request.offset} is not in {queue.min}..{len(queue.frames)}")
        until = min(len(queue.frames), request.offset + request.count_max)
        good = [at for at in range(request.offset, until) if at not in queue.damaged]
        entries = b"".join(ENTRY.pack(at, 1000 * at, len(queue.frames[at]), 0) for at in good)
        body = entries + b"".join(queue.frames[at] for at in good)
        return Pulled(len(good), until, queue.min, len(queue.frames), body)


class _Answers:
    def __init__(self, queues: StoredQueues) -> None:
        self._queues = queues

    def submit(self, request: Request, on_result: OnResult) -> None:
        on_result(self._queues.answer(request))

    def flush(self) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


def rows_of(batches: Any) -> list[dict[str, Any]]:
    """Rows of Arrow batches."""
    return [row for batch in batches for row in batch.to_pylist()]
