"""A name server and brokers in memory, with faults to order: the other end for tests of the clients.

It keeps the promises of penstock/requests as far as the clients rely on them. Long polls are answered when something
comes, never by time.
"""

from __future__ import annotations

import itertools
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from broker.groups.allocation import Claim, Place
from broker.groups.members import Groups, Terms, member_waker
from broker.kernel.theme import Wakers
from penstock.errors import (
    InvalidRequest,
    LogReplaced,
    OffsetOutOfRange,
    PenstockError,
    QueueNotFound,
    TopicNotFound,
    Unavailable,
)
from penstock.protocol.link import Link, OnResult
from penstock.protocol.message import (
    ANY_QUEUE,
    ATTEMPTS_AT,
    ENTRY,
    FRAME_HEAD_BYTES,
    OFFSETS,
    OFFSETS_AT,
    STORED_AT,
    decode_message,
)
from penstock.protocol.requests.groups import (
    Assignment,
    CommitOffsets,
    JoinGroup,
    LeaveGroup,
    NoteAttempts,
    QueueOffset,
    Tried,
    WatchGroup,
)
from penstock.protocol.requests.messages import (
    Append,
    Appended,
    AppendRuns,
    BoundsReply,
    OffsetReply,
    Placed,
    PlacedRun,
    Pull,
    Pulled,
    QueryBounds,
    Refused,
    SeekTime,
)
from penstock.protocol.requests.request import Done, Request, Result
from penstock.protocol.requests.retries import SendAllBack, SendBack, SentAllBack, SentBack, WentBack
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, QueryTopics, Route, TopicNames
from penstock.protocol.requests.topics import Bounds, DeleteTopic, DescribeTopic, TopicDetail
from penstock.protocol.runs import Run, decode_runs, record_of
from penstock.service.frame_server import Peer

QUEUES = 4


def records_of(run: Run) -> list[bytes]:
    """The records of a run of messages."""
    return [record_of(run.of([body], number)) for number, body in enumerate(run.bodies)]


def records_in(request: Append | AppendRuns) -> list[bytes]:
    """The records that a request stands for."""
    if isinstance(request, AppendRuns):
        return [record for run in decode_runs(bytes(request.body)) for record in records_of(run)]
    return cut_records(request.body)


def cut_records(body: bytes | memoryview) -> list[bytes]:
    """The records that stand end to end."""
    body, records = bytes(body), list[bytes]()
    while body:
        size = int.from_bytes(body[:4], "big")
        records.append(body[:size])
        body = body[size:]
    return records


class SmallGroup:
    """Positions of a group, and its members, which the broker's own code keeps."""

    def __init__(self, name: str, groups: Groups) -> None:
        self.name = name
        self.offsets: dict[str, int] = {}
        self.tried: dict[tuple[str, int], Tried] = {}
        self._groups = groups

    @property
    def members(self) -> list[str]:
        return [one.member for one in self._groups.members(self.name)[1]] if self.name in self._groups else []

    def check(self, member: str, generation: int, queues: Iterable[str]) -> None:
        self._groups.check_commit(self.name, member, generation, list(queues))


class KnownGroups(dict[str, SmallGroup]):
    """Groups by name; one that is asked for is there."""

    def __init__(self, broker: SmallBroker) -> None:
        self._broker = broker

    def __missing__(self, name: str) -> SmallGroup:
        made = self[name] = SmallGroup(name, self._broker._members)
        return made


class SmallBroker:
    """One broker; it is its own session for every peer."""

    def __init__(self, cluster: SmallCluster, name: str, address: str) -> None:
        self.route = BrokerRoute(name, address, QUEUES)
        self.queues: dict[str, list[bytes]] = {}
        self.first: dict[str, int] = defaultdict(int)
        self.groups = KnownGroups(self)
        self.now = 0.0  # by which sessions end
        self._wakers: Wakers = {}
        self._members = self._begin_groups(0)
        self._watching: list[tuple[WatchGroup, OnResult]] = []
        self.asked: list[Request] = []
        self.given_back: list[SendBack] = []
        self.refuse: Callable[[Request], PenstockError | None] = lambda request: None
        self.silent: Callable[[Request], bool] = lambda request: False
        self.refuse_record: Callable[[bytes], PenstockError | None] = lambda body: None
        self.answers: dict[type[Request], Callable[[Any], Result]] = {}
        self.creates = True
        self.log_id = "log-1"
        self.now_ms = 0  # what is stored now was stored then
        self.server: Any = None  # the thread that serves it, where there is one
        self._cluster = cluster
        self._parked: list[tuple[Pull, OnResult]] = []
        self._turn = itertools.count()

    # -- session

    def __call__(self, peer: Peer) -> SmallBroker:
        return self

    def submit(self, request: Request, on_result: OnResult) -> None:
        self.asked.append(request)
        if self.silent(request):
            return
        try:
            refusal = self.refuse(request)
            if refusal is not None:
                raise refusal
            result = self._handle(request, on_result)
        except PenstockError as error:
            result = error
        if result is not None:
            on_result(result)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    # -- requests

    def _handle(self, request: Request, on_result: OnResult) -> Result | None:
        if type(request) in self.answers:
            return self.answers[type(request)](request)
        if isinstance(request, Append | AppendRuns):
            return self._append(request)
        if isinstance(request, Pull):
            return self._pull(request, on_result)
        if isinstance(request, DescribeTopic):
            return self._describe(request)
        if isinstance(request, DeleteTopic):
            return self._delete(request)
        if isinstance(request, QueryBounds):
            return BoundsReply(tuple(self._bounds(queue) for queue in request.queues), self.log_id)
        if isinstance(request, SeekTime):
            return self._seek_time(request)
        if isinstance(request, JoinGroup | WatchGroup | LeaveGroup | CommitOffsets):
            return self._group(request, on_result)
        if isinstance(request, NoteAttempts):
            group = self.groups[request.group]
            group.check(request.member, request.generation, [one.queue for one in request.tried])
            group.tried.update({(one.queue, one.offset): one for one in request.tried})
            return Done()
        if isinstance(request, SendBack):
            return self._send_back(request)
        if isinstance(request, SendAllBack):
            return self._send_all_back(request)
        return self._cluster.handle(request)

    def _send_all_back(self, request: SendAllBack) -> Result:
        who = request.group, request.member, request.generation
        self.groups[request.group].check(*who[1:], [row.queue for row in request.rows])
        rows = [self._take_back(SendBack(*who, *row[:3], request.attempts_max, row.reason)) for row in request.rows]
        return SentAllBack(tuple([WentBack(one.attempt, one.due_ms, 0, "") for one in rows]))

    def _send_back(self, request: SendBack) -> Result:
        self.groups[request.group].check(request.member, request.generation, [request.queue])
        return self._take_back(request)

    def _take_back(self, request: SendBack) -> SentBack:
        """A message comes again at once, whatever its delay is to be."""
        record = bytearray(self.queues[request.queue][request.offset])
        attempt = int.from_bytes(record[ATTEMPTS_AT : ATTEMPTS_AT + 4], "big") + 1
        name = f"%DLQ%{request.group}:0" if attempt >= request.attempts_max else f"%RETRY%{request.group}:0"
        is_new = name not in self.queues
        queue = self.queues.setdefault(name, [])
        record[ATTEMPTS_AT : ATTEMPTS_AT + 4] = attempt.to_bytes(4, "big")
        OFFSETS.pack_into(record, OFFSETS_AT, len(queue), 0)
        queue.append(bytes(record))
        self.given_back.append(request)
        if is_new:
            self.rebalance(self.groups[request.group])
        self._wake_pulls()
        return SentBack(attempt, 0 if attempt >= request.attempts_max else 1)

    def create(self, topic: str) -> None:
        for number in range(QUEUES):
            self.queues.setdefault(f"{topic}:{number}", [])

    def topics(self) -> set[str]:
        return {queue.rpartition(":")[0] for queue in self.queues}

    def _describe(self, request: DescribeTopic) -> Result:
        if request.topic not in self.topics():
            if not (request.create and self.creates):
                raise TopicNotFound(f"no topic {request.topic}")
            self.create(request.topic)
        bounds = tuple(self._bounds(f"{request.topic}:{number}") for number in range(QUEUES))
        return TopicDetail(request.topic, QUEUES, "disk", bounds)

    def _delete(self, request: DeleteTopic) -> Result:
        was = self._describe(DescribeTopic(request.topic))
        for number in range(QUEUES):
            del self.queues[f"{request.topic}:{number}"]
        return was

    def _bounds(self, queue: str) -> Bounds:
        if queue not in self.queues:
            raise QueueNotFound(queue)
        return Bounds(queue, self.first[queue], len(self.queues[queue]))

    def _seek_time(self, request: SeekTime) -> Result:
        times = [int.from_bytes(record[STORED_AT : STORED_AT + 8], "big") for record in self.queues[request.queue]]
        return OffsetReply(sum(stored_ms < request.stored_ms for stored_ms in times))

    def _append(self, request: Append | AppendRuns) -> Result:
        placed, refused = [], []
        records = records_in(request)
        assert len(records) == request.count
        for number, record in enumerate(records):
            message = decode_message(record)
            refusal = self.refuse_record(message.body)
            if refusal is None and message.topic not in self.topics():
                refusal = TopicNotFound(message.topic)
            if refusal is not None:
                refused.append(Refused(number, refusal.code, refusal.message))
                continue
            placed.append(self._store(number, message.topic, message.key, message.queue.number, record))
        self._wake_pulls()
        if isinstance(request, Append):
            return Appended("disk", tuple([Placed(one.queue_id, one.offset, 0) for one in placed]), tuple(refused))
        return Appended("disk", (), tuple(refused), tuple(placed))

    def _store(self, number: int, topic: str, key: str, queue_id: int, record: bytes) -> PlacedRun:
        if queue_id == ANY_QUEUE:
            queue_id = (zlib.crc32(key.encode()) if key else next(self._turn)) % QUEUES
        queue = self.queues[f"{topic}:{queue_id}"]
        stored = bytearray(record)
        stored[12:16] = queue_id.to_bytes(4, "big")
        stored[STORED_AT : STORED_AT + 8] = self.now_ms.to_bytes(8, "big")
        OFFSETS.pack_into(stored, OFFSETS_AT, len(queue), 0)
        queue.append(bytes(stored))
        return PlacedRun(number, queue_id, len(queue) - 1, 0)

    def _pull(self, request: Pull, on_result: OnResult) -> Result | None:
        if request.log_id not in ("", self.log_id):
            raise LogReplaced(f"offset {request.offset} is of log {request.log_id}, not {self.log_id}")
        bounds = self._bounds(request.queue)
        if not bounds.min <= request.offset <= bounds.end:
            raise OffsetOutOfRange(f"{request.offset} is outside {bounds}")
        if request.offset == bounds.end and request.wait_s > 0:
            self._parked.append((request, on_result))
            return None
        stop = min(request.offset + request.count_max, bounds.end)
        found = [
            (at, record)
            for at, record in enumerate(self.queues[request.queue][request.offset : stop], request.offset)
            if not request.tags or decode_message(record).tag in request.tags
        ]
        records = [record for _at, record in found]
        entries = [ENTRY.pack(at, 0, FRAME_HEAD_BYTES + len(record), 0) for at, record in found]
        frames = [bytes(FRAME_HEAD_BYTES) + record for record in records]
        return Pulled(len(records), stop, bounds.min, bounds.end, b"".join(entries + frames))

    def _wake_pulls(self) -> None:
        parked, self._parked = self._parked, []
        for request, on_result in parked:
            try:
                result = self._pull(request, on_result)
            except PenstockError as error:
                result = error
            if result is not None:
                on_result(result)

    # -- groups

    def _begin_groups(self, generation: int) -> Groups:
        return Groups(
            lambda topic: sum(queue.rpartition(":")[0] == topic for queue in self.queues),
            generation,
            Place(self.route.broker),
            self._wakers,
            lambda name: name in self.groups and bool(self.groups[name].offsets),
            self.now,
        )

    def begin_anew(self) -> None:
        """As a broker that was killed and is there again: it knows no members."""
        self._members = self._begin_groups(self._members.latest + 1000)
        for group in self.groups.values():
            group._groups = self._members
        watching, self._watching = self._watching, []
        for _request, on_result in watching:
            on_result(Unavailable("the broker was killed"))

    def pass_time(self, seconds: float) -> None:
        """Sessions end."""
        self.now += seconds
        self._members.expire(self.now)
        self._tell_members()

    def _group(
        self, request: JoinGroup | WatchGroup | LeaveGroup | CommitOffsets, on_result: OnResult
    ) -> Result | None:
        group, members = self.groups[request.group], self._members
        if isinstance(request, CommitOffsets):
            group.check(request.member, request.generation, [one.queue for one in request.offsets])
            group.offsets.update({one.queue: one.offset for one in request.offsets})
            return Done()
        if isinstance(request, WatchGroup):
            members.touch(request.group, request.member, request.generation, self.now)
            self._tell_members()
            if request.wait_s > 0 and not self._is_news(request):
                self._watching.append((request, on_result))
                return None
        elif isinstance(request, LeaveGroup):
            members.leave(request.group, request.member)
            self._tell_members()
            return Done()
        else:
            self.enter(request)
        return self._assignment(request)

    def enter(self, request: JoinGroup) -> None:
        """A member, which may be one of no client."""
        claim = Claim(frozenset(request.topics), request.room, frozenset(request.queues))
        terms = Terms(request.filter, request.strategy, request.session_s if request.ordered else 0.0)
        self._members.join(
            request.group,
            request.member,
            claim,
            request.session_s,
            self.now,
            terms,
            force=request.force,
            lets_go=request.lets_go,
            holding=request.holding,
        )
        self._tell_members()

    def _is_news(self, request: WatchGroup) -> bool:
        return self._members.of_member(request.group, request.member).members[request.member].changed > (
            request.generation
        )

    def rebalance(self, group: SmallGroup) -> None:
        """A generation of which all members are told."""
        if group.name in self._members:
            self._members._rebalance(group.name, self._members._groups[group.name], tell_all=True)
            self._tell_members()

    def _tell_members(self) -> None:
        stirred = frozenset(self._wakers)
        self._wakers.clear()
        told = [one for one in self._watching if member_waker(one[0].group, one[0].member) in stirred]
        self._watching = [one for one in self._watching if one not in told]
        for request, on_result in told:
            try:
                result: Result = self._assignment(request)
            except PenstockError as error:
                result = error
            on_result(result)

    def expel(self, group_name: str, member: str) -> None:
        """As if the member's session had run out."""
        self._members.leave(group_name, member)
        self._tell_members()

    def replace_log(self) -> None:
        """As a broker that starts over an empty data folder."""
        self.log_id = "log-2"
        self.queues = {queue: [] for queue in self.queues}
        self.groups.clear()
        self.begin_anew()

    def _assignment(self, request: JoinGroup | WatchGroup) -> Assignment:
        group, offsets = self._members.of_member(request.group, request.member), self.groups[request.group].offsets
        known = group.members[request.member]
        rows = tuple(QueueOffset(queue, offsets.get(queue, -1)) for queue in known.queues)
        tried = tuple(self.groups[request.group].tried.values())
        return Assignment(group.generation, rows, self.log_id, group.terms.filter, known.pending, tried)


class SmallCluster:
    """Brokers, and the name server that knows them; also the ``Links`` to all of them in the same process."""

    SERVERS = "127.0.0.1:9876"

    def __init__(self, brokers: int = 1, topics: Sequence[str] = ()) -> None:
        self.brokers = [SmallBroker(self, f"broker-{n}", f"127.0.0.1:{10911 + n}") for n in range(brokers)]
        for broker in self.brokers:
            for topic in topics:
                broker.create(topic)
        self.live = list(self.brokers)
        self.down: set[str] = set()
        self.away: tuple[str, ...] = ()  # names of brokers whose leases have ended

    def handle(self, request: Request) -> Result:
        """What the name server answers."""
        if isinstance(request, QueryRoute):
            found = [one.route for one in self.live if request.topic == "" or request.topic in one.topics()]
            return Route(tuple(found), self.away)
        assert isinstance(request, QueryTopics), request
        return TopicNames(tuple(sorted({topic for broker in self.live for topic in broker.topics()})), (), self.away)

    def link(self, address: str) -> Link:
        for broker in self.brokers:
            if broker.route.address == address:
                return broker
        assert address == self.SERVERS, address
        return self.brokers[0]

    def stored(self, topic: str) -> list[bytes]:
        """Bodies of a topic, in no order."""
        return [
            decode_message(record).body
            for broker in self.brokers
            for queue, records in broker.queues.items()
            if queue.rpartition(":")[0] == topic
            for record in records
        ]


def all_refuse(uses: Iterable[Callable[[], object]], told: str) -> None:
    """Each of these uses of a client raises ``InvalidRequest`` with this text."""
    for use in uses:
        with pytest.raises(InvalidRequest, match=told):
            use()
