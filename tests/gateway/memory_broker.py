"""A name server and one broker in memory, as a Link: the requests that a gateway makes, on plain lists.

Replies come when the link is flushed, or, with ``holds_replies``, when the test calls ``release``. It keeps the
promises that the gateway builds on: requests are carried out in order, a filter opened at a position holds every
message appended after it, a light queue's offsets begin at the log position at which it was opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from broker.filters import fold as filters
from broker.filters.fold import CLOSE, OPEN
from broker.groups.holders import Holders
from broker.kernel.handler import handlers_of
from broker.kernel.outcomes import Now, Parked
from broker.kernel.theme import Wakers
from broker.sessions.exchange_requests import ExchangeRequests
from broker.sessions.exchanges import exchange_of
from broker.sessions.gateways import Gateways
from broker.sessions.pages import SessionPages
from broker.sessions.questions import SessionQuestions
from broker.sessions.requests import SessionRequests
from broker.settings import BrokerSettings
from broker.shares import fold as shares
from broker.shares.fold import Shares
from broker.shares.requests import ShareRequests
from broker.state import BrokerState
from broker.store.destinations import Incoming
from broker.store.records import Change, Stored
from broker.topics import fold as topics
from penstock.clock import Clock
from penstock.errors import Fenced, OffsetOutOfRange, PenstockError, QueueNotFound, TopicNotFound
from penstock.protocol.link import Link, OnResult
from penstock.protocol.message import (
    BODY_AT,
    BODY_BYTES_MAX,
    CLIENT_ID,
    ENTRY,
    FLAG_ONCE,
    FLAG_RETAIN,
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    MQTT_ID,
    OFFSETS,
    OFFSETS_AT,
    QUEUE_ID_AT,
    RECORD_HEAD,
    STORED,
    STORED_AT,
    encode_record,
    mqtt_name,
    property_of,
    record_body,
    record_properties,
    record_topic,
)
from penstock.protocol.requests.filters import (
    CloseFilters,
    FetchRetained,
    FiltersKept,
    KeepFilters,
    OpenedFilter,
    OpenedFilters,
    OpenFilters,
    RetainedPage,
)
from penstock.protocol.requests.groups import (
    FetchOffsets,
    GroupOffsets,
    HeldOffsets,
    HoldOffsets,
    Progress,
    QueueOffset,
)
from penstock.protocol.requests.messages import (
    Appended,
    AppendRuns,
    BoundsReply,
    OffsetReply,
    Pull,
    Pulled,
    QueryBounds,
    Refused,
    SeekTime,
    TellAcknowledged,
    TellAudited,
)
from penstock.protocol.requests.request import Done, Request, Result
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, Route
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.protocol.requests.sessions import (
    HOME_TOPIC,
    KeepSessions,
)
from penstock.protocol.requests.topics import Bounds, CreateTopic, DescribeTopic, TopicDetail
from penstock.protocol.runs import checksum_of, decode_runs
from tests.broker.facts import fact
from topicmap.names import is_share, matches, plain_filter
from topicmap.queues import filter_queue

if TYPE_CHECKING:
    from broker.store.message_store import MessageStore


def encode_record_of(body: bytes, tail: bytes, flag: int, born_ms: int) -> bytes:
    """The record of a message of a run."""
    topic_bytes = int.from_bytes(tail[:2], "big")
    return encode_record(tail[2 : 2 + topic_bytes], body, tail[topic_bytes + 4 :], flag=flag, born_ms=born_ms)


class _Queue:
    def __init__(self, base: int) -> None:
        self.base = base
        self.frames: list[tuple[int, bytes]] = []

    @property
    def end(self) -> int:
        return self.base + len(self.frames)

    def forget_first(self) -> None:
        """Retention passes its first message."""
        del self.frames[0]
        self.base += 1


class _Facts:
    """The store as the requests about sessions see it."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    @property
    def written(self) -> int:
        return self._broker.position

    def bounds(self, queue: str) -> Bounds:
        one = self._broker.queues[queue]
        return Bounds(queue, one.base, one.end)

    def next_offset(self, queue: str) -> int:
        return self._broker.queues[queue].end

    def position_of(self, queue: str, offset: int) -> int:
        one = self._broker.queues[queue]
        return one.frames[offset - one.base][0] if one.base <= offset < one.end else self._broker.position

    def offset_at(self, queue: str, position: int) -> int:
        one = self._broker.queues[queue]
        return one.base + sum([at < position for at, _ in one.frames])

    def read(self, queue: str, offset: int, count_max: int, bytes_max: int) -> Pulled:
        return cast(Pulled, self._broker._Pull(Pull(queue, offset, bytes_max, count_max)))

    fact_bytes_max = BODY_BYTES_MAX

    def append_facts(self, facts: list[Incoming], now_ms: int) -> None:
        self.append(facts, now_ms)

    def append(self, batch: list[Incoming], now_ms: int) -> None:
        broker = self._broker
        for incoming in batch:
            run, topic = incoming.run, incoming.destination.topic
            record = encode_record_of(run.bodies[0], run.tail, run.flag, run.born_ms)
            frame = FRAME_HEAD.pack(0, 0, FRAME_HEAD_BYTES + len(record), 0, 0) + record
            broker.end(broker.state.apply(Stored(broker.position, len(frame), topic, 0, 0, b"", now_ms, frame)))
            broker.position += len(frame)


class MemoryBroker:
    """Everything that happened is open to the test: ``requests`` in their order, ``log``, ``queues``, ``retained``.

    With ``answers_at_once`` a reply comes within ``submit``, as it may from a broker in the same process."""

    answers_at_once = False

    address = "broker:1"
    name = "b"

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.log: list[bytes] = []
        self.position = 1000
        self.queues: dict[str, _Queue] = {}
        self.topic_queues: dict[str, _Queue] = {}
        self.retained: dict[str, tuple[int, bytes]] = {}
        self.parked: list[tuple[Pull, OnResult]] = []
        self.asked: list[tuple[Parked, OnResult]] = []
        self.topics: list[str] = []
        self.queues_per_topic = 1
        self.chosen_queue: Callable[[int], int] = lambda number: number
        self.groups: dict[str, dict[str, int]] = {}
        self.set_backs: dict[str, dict[str, int]] = {}
        self.holders = Holders((), 0.0)
        self.holds_replies = False
        self.holds: tuple[type[Request], ...] = ()
        self.now_ms = 0
        self.clock: Clock | None = None  # of the gateways beside it, for whatever does not go by the wall clock
        self.level = "disk"  # what every append reaches
        self.has_brokers = True
        self.silent: set[type[Request]] = set()
        self.refuses: dict[type[Request], PenstockError] = {}
        self.refused_records: dict[int, PenstockError] = {}
        self._held: list[tuple[OnResult, Result]] = []
        self._kept_back: list[tuple[OnResult, Result]] = []
        self.state = BrokerState()
        self.state.apply(fact(topics.TOPIC, [HOME_TOPIC, 1, "disk"]))
        facts = cast("MessageStore", _Facts(self))
        self._wakers: Wakers = {}
        self.questions = SessionQuestions(self.state, self._wakers)
        gateways = Gateways(self.state.sessions)
        self.sessions = SessionRequests(
            self.state, facts, BrokerSettings(), gateways, self.questions, 0.0, 0, self._wakers
        )
        self.shares = ShareRequests(self.state, facts, BrokerSettings(), 0.0, self._wakers)
        exchanges = ExchangeRequests(self.state, facts)
        self.traced: tuple[str, ...] = ()
        self._handlers = handlers_of(
            (self.sessions, self.questions, SessionPages(self.state, facts), self.shares, exchanges)
        )
        self._stirred: set[str] = set()

        self.epochs = 0

    @property
    def now_s(self) -> float:
        return self.now_ms / 1000 if self.clock is None else self.clock.monotonic()

    def new_epoch(self) -> str:
        """A name for an epoch of a gateway."""
        self.epochs += 1
        return f"epoch-{self.epochs}"

    # ------------------------------------------------------------ Links and Link

    def link(self, address: str) -> Link:
        return self

    def submit(self, request: Request, on_result: OnResult) -> None:
        request = request.for_wire()
        self.requests.append(request)
        if type(request) in self.silent:
            return
        if type(request) in self.refuses:
            self._held.append((on_result, self.refuses[type(request)]))
            return
        if type(request) in self._handlers:
            self._ask_sessions(request, on_result)
            return
        result = getattr(self, f"_{type(request).__name__}")(request)
        if result is None:
            self.parked.append((request, on_result))  # type: ignore[arg-type]
        elif self.answers_at_once and not self.holds_replies:
            on_result(result)
        else:
            self._reply(request, on_result, result)

    def flush(self) -> None:
        if not self.holds_replies:
            self.release()

    def release(self) -> None:
        """Hands out the replies that wait, and those to pulls that have something now."""
        while self._held or self._wake_pulls():
            held, self._held = self._held, []
            for on_result, result in held:
                on_result(result)

    def _wake_pulls(self) -> bool:
        self._wake_asked()
        parked, self.parked = self.parked, []
        for request, on_result in parked:
            result = self._Pull(request)
            if result is None:
                self.parked.append((request, on_result))
            else:
                self._held.append((on_result, result))
        return bool(self._held)

    def made(self, kind: type[Any]) -> list[Any]:
        return [request for request in self.requests if isinstance(request, kind)]

    def bodies(self) -> list[bytes]:
        return [record_body(record) for record in self.log]

    # ------------------------------------------------------------ sessions: the real fold and the real requests

    def _ask_sessions(self, request: Request, on_result: OnResult) -> None:
        try:
            outcome = self._handlers[type(request)](request, self.now_s, self.now_ms)
        except PenstockError as error:
            outcome = Now(error)
        if isinstance(outcome, Parked):
            self.asked.append((outcome, on_result))
        else:
            self._reply(request, on_result, outcome.result)

    def _reply(self, request: Request, on_result: OnResult, result: Result) -> None:
        (self._kept_back if isinstance(request, self.holds) else self._held).append((on_result, result))

    def let_go(self) -> None:
        """The replies that were held back by their kind may go."""
        self.holds = ()
        self._held += self._kept_back
        self._kept_back = []

    def let_first_go(self) -> None:
        """The oldest of these may."""
        self._held.append(self._kept_back.pop(0))

    def lose_kept_back(self, error: PenstockError) -> None:
        """The link breaks: what was asked has been done, but its replies never come."""
        self._kept_back = [(on_result, error) for on_result, _ in self._kept_back]
        self.let_go()

    def limit_sessions(self, bytes_max: int) -> None:
        """So much is kept of all sessions from now on."""
        self.sessions._settings = BrokerSettings(sessions_bytes_max=bytes_max)

    def move(self, queue: str) -> None:
        """It has started again over damage, behind which all of a light queue stood (docs/decisions/0007)."""
        moved = self.queues[queue]
        moved.base = self.position
        self.position += len(moved.frames)
        self.release()

    def leave_alone(self, owner: str) -> None:
        """An owner is as good as dead: its sessions are anybody's."""
        self.sessions.keep(KeepSessions(owner, 1e-9), self.now_s - 1, self.now_ms)

    def outlive(self, gateway: str) -> None:
        """A gateway has died, and its leases are over."""
        self.leave_alone(gateway)
        known = self.state.filters
        for owner in [one for one in known.owners if one.startswith(f"{gateway}/")]:
            self._CloseFilters(CloseFilters(owner, tuple(known.held_by(owner))))

    def pass_time(self) -> None:
        """What the broker does by the clock."""
        self.sessions.tick(self.now_s, self.now_ms, self.now_ms)
        self.shares.tick(self.now_s, self.now_ms, self.now_ms)
        for group in self.holders.expire(self.now_s):
            self.groups[group] |= self.holders.ahead(group, self.groups[group])

    def _wake_asked(self) -> None:
        changed = set(self._wakers)
        self._wakers.clear()
        changed |= {*self._stirred}
        self._stirred.clear()
        asked, self.asked = self.asked, []
        for outcome, on_result in asked:
            is_due = outcome.deadline <= self.now_s
            result = outcome.retry(is_due) if is_due or changed.intersection(outcome.wakers) else None
            if result is None:
                self.asked.append((outcome, on_result))
            else:
                self._held.append((on_result, result))

    # ------------------------------------------------------------ requests

    def _TellAudited(self, request: TellAudited) -> Result:
        return Done()

    def _Ping(self, request: Ping) -> Result:
        return ServerInfo("broker", "b", "0", self.now_ms)

    def _QueryRoute(self, request: QueryRoute) -> Result:
        here = self.has_brokers and (not request.topic or request.topic in self.topics)
        return Route((BrokerRoute(self.name, self.address, 4),) if here else ())

    def _DescribeTopic(self, request: DescribeTopic) -> Result:
        if request.create:
            self.topics.append(request.topic)
        elif request.topic not in self.topics:
            return TopicNotFound(request.topic)
        bounds = [Bounds(key, one.base, one.end) for key, one in self._topic_queues(request.topic).items()]
        return TopicDetail(request.topic, self.queues_per_topic, "disk", tuple(bounds))

    def _CreateTopic(self, request: CreateTopic) -> Result:
        self.topics.append(request.topic)
        return TopicDetail(request.topic, request.queues, request.level, ())

    def _topic_queues(self, topic: str) -> dict[str, _Queue]:
        keys = [f"{topic}:{queue_id}" for queue_id in range(self.queues_per_topic)]
        return {key: self.topic_queues.setdefault(key, _Queue(0)) for key in keys}

    def _SeekTime(self, request: SeekTime) -> Result:
        queue = self.topic_queues[request.queue]
        times = [STORED.unpack_from(frame, FRAME_HEAD_BYTES + STORED_AT)[0] for _, frame in queue.frames]
        return OffsetReply(queue.base + sum(time < request.stored_ms for time in times))

    def _HoldOffsets(self, request: HoldOffsets) -> Result:
        kept, now = self.groups.setdefault(request.group, {}), self.now_s
        set_backs = self.set_backs.get(request.group, {})
        self.holders.report(request.group, request.holder, request.lease_s, request.progress, set_backs, now)
        kept |= self.holders.ahead(request.group, kept)
        if not request.lease_s:
            self.holders.leave(request.group, request.holder)
        rows = [Progress(one, kept.get(one, -1), set_backs.get(one, 0)) for one, _, _ in request.progress]
        return HeldOffsets(tuple(rows))

    def _FetchOffsets(self, request: FetchOffsets) -> Result:
        kept = self.groups.get(request.group, {})
        return GroupOffsets(tuple([QueueOffset(queue, kept.get(queue, -1)) for queue in request.queues]))

    def set_back(self, group: str, queue: str, offset: int) -> None:
        """A native consumer commits a position that is further back."""
        self.groups[group][queue] = offset
        counted = self.set_backs.setdefault(group, {})
        counted[queue] = counted.get(queue, 0) + 1
        self.holders.set_back(group, [queue])

    def _AppendRuns(self, request: AppendRuns) -> Result:
        if request.gateway_epoch in self.state.gateway_epochs.over:
            return Fenced("this epoch is over")
        body = bytes(request.body)
        assert request.checksum == checksum_of(body)
        records = [
            encode_record_of(one, run.tail, run.flag, run.born_ms) for run in decode_runs(body) for one in run.bodies
        ]
        assert len(records) == request.count
        refused = []
        for index, record in enumerate(records):
            error = self.refused_records.pop(index, None)
            if error is not None:
                refused.append(Refused(index, error.code, error.message))
            elif not self._is_repeated(record):
                self.append(record)
        return Appended(self.level, (), tuple(refused))

    def _is_repeated(self, record: bytes) -> bool:
        if not RECORD_HEAD.unpack_from(record)[4] & FLAG_ONCE:
            return False
        exchange = exchange_of(property_of(record_properties(record), MQTT_ID.encode()).decode())
        assert exchange is not None
        client = property_of(record_properties(record), CLIENT_ID.encode()).decode()
        is_known = self.state.exchanges.holds(client, exchange[0], exchange[2])
        self.state.exchanges.stored(client, exchange[0], exchange[2])
        return is_known

    def append(self, record: bytes) -> None:
        """Stores one record, as a native producer's."""
        stamped = bytearray(record)
        STORED.pack_into(stamped, STORED_AT, self.now_ms, bytes(8))
        topic = bytes(record_topic(record)).decode()
        keys = list(self._topic_queues(topic))
        key = keys[self.chosen_queue(len(self.log)) % len(keys)]
        place = self.topic_queues[key]
        stamped[QUEUE_ID_AT : QUEUE_ID_AT + 4] = int(key.rpartition(":")[2]).to_bytes(4, "big")
        OFFSETS.pack_into(stamped, OFFSETS_AT, place.end, self.position)
        record = bytes(stamped)
        frame = FRAME_HEAD.pack(0, 0, FRAME_HEAD_BYTES + len(record), 0, 0) + record
        self.log.append(record)
        place.frames.append((self.position, frame))
        if topic not in self.topics:
            self.topics.append(topic)
        name = mqtt_name(record_topic(record), record_properties(record))
        for key, queue in self.queues.items():
            if matches(key.removeprefix("~filter:"), name):
                queue.frames.append((self.position, frame))
                self._stirred.add(key)
        if RECORD_HEAD.unpack_from(record)[4] & FLAG_RETAIN:
            if len(record_body(record)):
                self.retained[name] = (self.position, frame)
            else:
                self.retained.pop(name, None)
        assert record[BODY_AT - 4 :]
        self.position += len(frame)

    def _Pull(self, request: Pull) -> Result | None:
        queue = self.queues.get(request.queue) or self.topic_queues.get(request.queue)
        if queue is None:
            return QueueNotFound(request.queue)
        if not queue.base <= request.offset <= queue.end:
            return OffsetOutOfRange(f"{request.offset} is not in {queue.base}..{queue.end}")
        frames = queue.frames[request.offset - queue.base :][: request.count_max]
        if not frames and request.wait_s:
            return None
        kept, size = [], 0
        for position, frame in frames:
            if kept and size + len(frame) > request.bytes_max:
                break
            kept.append((position, frame))
            size += len(frame)
        return Pulled(len(kept), request.offset + len(kept), queue.base, queue.end, _body(request.offset, kept))

    def _QueryBounds(self, request: QueryBounds) -> Result:
        queues = self.queues | self.topic_queues
        for key in request.queues:
            if key not in queues:
                return QueueNotFound(key)
        return BoundsReply(tuple(Bounds(key, queues[key].base, queues[key].end) for key in request.queues))

    def _OpenFilters(self, request: OpenFilters) -> Result:
        opened = []
        held = {one: self.state.filters.begun(request.owner, one) for one in request.filters}
        self.state.apply(fact(filters.TOPIC, [OPEN, request.owner, list(request.filters)], self.position))
        for one in request.filters:
            key = filter_queue(plain_filter(one))
            queue = self.queues.setdefault(key, _Queue(self.position))
            if held[one]:  # where it was opened for the session, whoever reads it now
                later = sum(position >= held[one] for position, _ in queue.frames)
                opened.append(OpenedFilter(one, key, queue.end - later, held[one]))
                continue
            if is_share(one):
                self.state.apply(fact(shares.TOPIC, Shares.beginning(one, queue.end), self.position))
            opened.append(OpenedFilter(one, key, queue.end, self.position))
        return OpenedFilters(tuple(opened))

    def _CloseFilters(self, request: CloseFilters) -> Result:
        self.end(self.state.apply(fact(filters.TOPIC, [CLOSE, request.owner, list(request.filters)])))
        return Done()

    def end(self, change: Change) -> None:
        """Light queues that nobody holds any more go."""
        for key in change.ended:
            self.queues.pop(key, None)
            self._stirred.add(key)

    def _KeepFilters(self, request: KeepFilters) -> Result:
        return FiltersKept(self.traced)

    def _TellAcknowledged(self, request: TellAcknowledged) -> Result:
        return Done()

    def _FetchRetained(self, request: FetchRetained) -> Result:
        names = sorted(name for name in self.retained if name > request.after and matches(request.filter, name))
        page = names[: request.count_max]
        after = page[-1] if len(names) > len(page) else ""
        return RetainedPage(len(page), after, _body(0, [self.retained[name] for name in page], steps=0))


def _body(offset: int, frames: list[tuple[int, bytes]], steps: int = 1) -> bytes:
    entries = [ENTRY.pack(offset + at * steps, position, len(frame), 0) for at, (position, frame) in enumerate(frames)]
    return b"".join(entries + [frame for _, frame in frames])
