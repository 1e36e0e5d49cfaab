"""Real brokers on simulated disks, and the name server that knows them, as links in one process, for tests of clients.

A request is carried out as it is submitted; its reply comes with the flush. Long polls are answered when something
comes, never by time: a broker's clock stands still unless a test moves it, or a message was given back, which comes
again at once. A test may refuse requests, leave them without an answer, or answer them itself.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from broker.groups.requests import GroupRequests
from broker.lineage.naming import name_log
from namesrv.registry import Registry
from penstock.errors import InvalidRequest, PenstockError, Unavailable
from penstock.protocol.link import Link, OnResult
from penstock.protocol.message import FRAME_HEAD_BYTES, Message, decode_message, encode_message
from penstock.protocol.requests.groups import CommitOffsets, LeaveGroup, QueueOffset
from penstock.protocol.requests.messages import Append, Appended, AppendRuns, Refused
from penstock.protocol.requests.request import Done, Request, Result
from penstock.protocol.requests.retries import SendAllBack, SendBack
from penstock.protocol.requests.routes import (
    BrokerHeartbeat,
    BrokerRoute,
    HeartbeatReply,
    QueryRoute,
    QueryTopics,
    RegisterBroker,
    UnregisterBroker,
)
from penstock.protocol.requests.topics import ChangeTopic, DescribeTopic
from penstock.protocol.requests.transactions import BeginHalves, EndHalves, HalvesBegun
from penstock.protocol.runs import checksum_of, decode_runs, encode_runs
from penstock.service.frame_server import Peer
from tests.broker.broker_rig import Rig

QUEUES = 4
BEGIN_MS = 1_700_000_000_000
"""What the brokers' wall clocks show at first."""
LEASE_S = 60.0
DEFAULTS: dict[str, Any] = {
    "default_queues": QUEUES,
    "segment_bytes": 1 << 24,
    "ahead_bytes": 0,
    "retry_delays_s": (0.001,),
}
"""A message that a member gives back comes again at once."""


class LinkedSession:
    """One peer's way to a broker: what it has asked and waits for ends with it."""

    def __init__(self, broker: LinkedBroker, number: int) -> None:
        self._broker = broker
        self._number = number

    def submit(self, request: Request, on_result: OnResult) -> None:
        self._broker.take(request, on_result, self._number)

    def flush(self) -> None:
        self._broker.settle()

    def hold(self) -> None:
        self._broker.rig.dispatch.hold(self._number)

    def release(self) -> None:
        self._broker.rig.dispatch.release(self._number)

    def close(self) -> None:
        self._broker.rig.dispatch.drop(self._number)


class LinkedBroker:
    """One broker, which is the link to itself, and opens sessions for peers of a server.

    Attributes:
        asked: all requests, in order.
        refuse: the error that a request ends in, which is not carried out then.
        silent: whether a request is neither carried out nor answered.
        refuse_record: the error for a message of an append, by its body; it is not stored then.
        answers: what answers the requests of a kind in place of the broker; None: no answer.
        server: the thread that serves it, where there is one.
    """

    def __init__(self, cluster: LinkedCluster, name: str, address: str, **settings: Any) -> None:
        self.name = name
        self.address = address
        self.asked: list[Request] = []
        self.refuse: Callable[[Request], PenstockError | None] = lambda request: None
        self.silent: Callable[[Request], bool] = lambda request: False
        self.refuse_record: Callable[[bytes], PenstockError | None] = lambda body: None
        self.answers: dict[type[Request], Callable[[Any], Result | None]] = {}
        self.server: Any = None
        self._cluster = cluster
        self._settings = {"name": name, **DEFAULTS, **settings}
        self._done: list[Request] = []
        self._sessions = itertools.count(2)
        self._rng = random.Random(name)
        self._waiting: dict[int, OnResult] = {}
        self._numbers = itertools.count()
        self._is_settling = self._gave_back = False
        self.rig = self._begun(Rig(set_ms=BEGIN_MS, **self._settings))

    def _begun(self, rig: Rig) -> Rig:
        name_log(rig.state.identity, rig.store, self._rng, rig.store.last_ms)
        return rig

    # ------------------------------------------------------------ link and sessions

    def __call__(self, peer: Peer) -> LinkedSession:
        return LinkedSession(self, next(self._sessions))

    def submit(self, request: Request, on_result: OnResult) -> None:
        self.take(request, on_result, 1)

    def flush(self) -> None:
        self.settle()

    def take(self, request: Request, on_result: OnResult, session: int) -> None:
        """One request of a session."""
        self.asked.append(request)
        if self.silent(request):
            return
        refusal = self.refuse(request)
        if refusal is not None:
            on_result(refusal)
        elif type(request) in self.answers:
            self._answer(request, on_result)
        elif isinstance(request, QueryRoute | QueryTopics):
            on_result(self._cluster.handle(request))
        else:
            self._carry_out(request.for_wire(), on_result, session)

    def _answer(self, request: Request, on_result: OnResult) -> None:
        try:
            result = self.answers[type(request)](request)
        except PenstockError as error:
            result = error
        if result is not None:
            on_result(result)

    def _carry_out(self, request: Request, on_result: OnResult, session: int) -> None:
        self._done.append(request)
        self._gave_back |= isinstance(request, SendBack | SendAllBack)
        number = next(self._numbers)
        self._waiting[number] = on_result

        def answered(result: Result) -> None:
            told = self._waiting.pop(number, None)
            if told is not None:
                told(result)

        tell: OnResult = answered
        if isinstance(request, AppendRuns):
            request, tell = self._without_refused(request, answered)
        self.rig.dispatch.submit(request, tell, session)

    def _without_refused(self, request: AppendRuns, on_result: OnResult) -> tuple[AppendRuns, OnResult]:
        """An append without the messages that are to be refused, and what puts their errors into its answer."""
        singles = [run.of([body], at) for run in decode_runs(bytes(request.body)) for at, body in enumerate(run.bodies)]
        found = {at: error for at, run in enumerate(singles) if (error := self.refuse_record(run.bodies[0]))}
        if not found:
            return request, on_result
        kept = [at for at in range(len(singles)) if at not in found]
        body = encode_runs([singles[at] for at in kept])
        rows = tuple(Refused(at, error.code, error.message) for at, error in found.items())

        def answered(result: Result) -> None:
            if isinstance(result, Appended):
                refused = (*rows, *(one._replace(at=kept[one.at]) for one in result.refused))
                placed = tuple(one._replace(at=kept[one.at]) for one in result.runs)
                result = Appended(result.level, (), tuple(sorted(refused)), placed)
            on_result(result)

        return AppendRuns(len(kept), checksum_of(body), body, detail=request.detail), answered

    def settle(self) -> None:
        """What is stored reaches the disk, and wakes those who wait for it."""
        if self._is_settling:
            return
        self._is_settling = True
        try:
            self.rig.dispatch.end_batch()
            while self.rig.store.durable < self.rig.store.written:
                self.rig.sync()
                self.rig.dispatch.end_batch()
                self._wake_given_back()
        finally:
            self._is_settling = False

    def _wake_given_back(self) -> None:
        """Where messages were given back, time goes on until they have come again."""
        gave_back, self._gave_back = self._gave_back, False
        while gave_back and (due_ms := self.rig.state.timers.next_due_ms) is not None:
            self.rig.clock.now += max(0.001, (due_ms - self.rig.times.wall_ms()) / 1000)
            self.rig.dispatch.tick()

    def listen(self, serve: Callable[[Any], Any]) -> None:
        """Serves it on a port, where clients then come."""
        self.server = serve(self)
        self.address = self.server.address

    def do(self, work: Callable[[], Any]) -> None:
        """Does something in the thread that serves it."""
        if self.server is not None:
            self.server.do(work)
        else:
            work()

    # ------------------------------------------------------------ what it has

    @property
    def route(self) -> BrokerRoute:
        """Where clients find it."""
        return BrokerRoute(self.name, self.address, QUEUES)

    @property
    def log_id(self) -> str:
        """The identity of its log."""
        return self.rig.state.identity.log_id

    def topics(self) -> set[str]:
        """Names of its topics."""
        return {one.topic for one in self.rig.state.topics}

    def records(self, queue: str) -> list[bytes]:
        """The records of a queue that are still there."""
        bounds = self.rig.store.bounds(queue)
        return [self.rig.store.frame_at(queue, at)[FRAME_HEAD_BYTES:] for at in range(bounds.min, bounds.end)]

    def bodies(self, topic: str) -> list[bytes]:
        """Bodies of a topic, queue by queue."""
        known = self.rig.state.topics.get(topic)
        queues = [f"{topic}:{number}" for number in range(known.queues)] if known else []
        return [decode_message(record).body for queue in queues for record in self.records(queue)]

    def positions(self, group: str) -> dict[str, int]:
        """What a group has committed."""
        return dict(self.rig.state.offsets.of(group))

    def members(self, group: str) -> list[str]:
        """The members of a group, by name."""
        groups = self.rig.theme(GroupRequests).groups
        return [one.member for one in groups.members(group)[1]] if group in groups else []

    @property
    def given_back(self) -> list[SendBack]:
        """The messages that members gave back, without refused requests."""
        found: list[SendBack] = []
        for one in self._done:
            if isinstance(one, SendBack):
                found.append(one)
            elif isinstance(one, SendAllBack):
                who = one.group, one.member, one.generation
                found += [SendBack(*who, *row[:3], one.attempts_max, row.reason) for row in one.rows]
        return found

    # ------------------------------------------------------------ what others do to it

    def ask(self, request: Request) -> Any:
        """Carries out a request of no client of the test; returns its answer, if there is one yet."""
        answers: list[Result] = []

        def work() -> None:
            self.rig.dispatch.submit(request, answers.append, 0)
            self.settle()

        self.do(work)
        return answers[0] if answers else None

    def put(self, *messages: Message, queue: int = 0) -> None:
        """Stores messages."""
        records = [encode_message(one, queue_id=queue) for one in messages]
        stored = self.ask(Append(len(records), False, b"".join(records)))
        assert isinstance(stored, Appended), stored
        assert not stored.refused, stored

    def begin_halves(self, *messages: Message, group: str = "g") -> list[int]:
        """Stores halves of a group, about whose outcomes producers are to be asked now; their ids."""
        begun = self.ask(BeginHalves(group, len(messages), b"".join(map(encode_message, messages))))
        assert isinstance(begun, HalvesBegun), begun
        self.pass_time(self.rig.settings.half_check_after_s)
        return list(begun.ids)

    def outcomes(self) -> list[tuple[int, str]]:
        """The outcomes that producers have told, by the ids of halves."""
        return [(row.id, row.outcome) for one in self._done if isinstance(one, EndHalves) for row in one.outcomes]

    def create(self, topic: str) -> None:
        """Makes a topic."""
        self.ask(DescribeTopic(topic, create=True))

    def commit(self, group: str, **offsets: int) -> None:
        """Sets positions of a group, as a tool or, where it has members, as one of them. Names: ``orders_0``."""
        groups = self.rig.theme(GroupRequests).groups
        generation, who = groups.members(group) if group in groups else (0, ())
        for queue, offset in offsets.items():
            name = ":".join(queue.rsplit("_", 1))
            member = next((one.member for one in who if name in one.queues), "")
            done = self.ask(CommitOffsets(group, member, generation, (QueueOffset(name, offset),)))
            assert isinstance(done, Done), done

    def expel(self, group: str) -> None:
        """A group loses its first member, as if its session had run out."""
        self.ask(LeaveGroup(group, self.members(group)[0]))

    def pass_time(self, seconds: float) -> None:
        """Time passes for the broker: sessions end."""

        def work() -> None:
            self.rig.clock.now += seconds
            self.rig.dispatch.tick()
            self.settle()

        self.do(work)

    def retire(self, topic: str) -> None:
        """Retention removes all messages of a topic, for which no group has asked for long."""
        self.ask(ChangeTopic(topic, retention_s=1))
        for seconds in (self.rig.settings.reader_silence_s, 60.0):  # first the readers are looked at, then the topic
            self.pass_time(seconds)

    def set_time(self, wall_ms: int) -> None:
        """Its wall clock shows this from now on, and is believed."""

        def work() -> None:
            self.rig.clock.set_ms = wall_ms - int(self.rig.clock.now * 1000)
            self.rig.guard.confirm()

        self.do(work)

    def begin_anew(self) -> None:
        """It is killed and started again: it knows no members."""

        def work() -> None:
            self.rig = self.rig.restarted()
            self._break_off()

        self.do(work)

    def replace_log(self) -> None:
        """It starts over an empty data folder; the topics are made again."""
        topics = self.topics()

        def work() -> None:
            self.rig = self._begun(Rig(set_ms=BEGIN_MS, **self._settings))
            self._break_off()

        self.do(work)
        for topic in sorted(topics):
            self.create(topic)

    def _break_off(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for tell in waiting.values():
            tell(Unavailable("the broker was killed").with_fate(True))


class LinkedCluster:
    """Brokers, and the name server that knows them; also the ``Links`` to all of them.

    Attributes:
        live: the brokers that have a lease with the name server.
        peers: further brokers, which others have named, and of which it has not heard.
    """

    SERVERS = "127.0.0.1:9876"

    def __init__(self, brokers: int = 1, topics: Sequence[str] = (), **settings: Any) -> None:
        """``settings``: of all brokers."""
        self.brokers = [LinkedBroker(self, f"broker-{n}", f"127.0.0.1:{10911 + n}", **settings) for n in range(brokers)]
        for broker in self.brokers:
            for topic in topics:
                broker.create(topic)
        self.live = list(self.brokers)
        self.peers: tuple[str, ...] = ()
        self._registry = Registry()
        self._now = 0.0

    def handle(self, request: Request) -> Result:
        """What the name server answers, a lease after brokers have told it all that they have."""
        began, self._now = self._now, self._now + 1.2 * LEASE_S
        for broker in self.brokers:
            if broker in self.live:
                self._tell(broker, began)
            else:
                self._told(UnregisterBroker(broker.name, broker.address), began)
        answer = self._registry.answer(request, self._now)
        assert answer is not None
        return answer

    def _tell(self, broker: LinkedBroker, began: float) -> None:
        name, address, (version, topics) = broker.name, broker.address, broker.rig.state.routes()
        self._told(RegisterBroker(name, address, version, LEASE_S, topics, self.peers, log_id=broker.log_id), began)
        self._told(BrokerHeartbeat(name, address, version, LEASE_S), began + LEASE_S / 2)

    def _told(self, request: Request, now: float) -> None:
        done = self._registry.answer(request, now)
        assert isinstance(done, Done | HeartbeatReply), done

    def lose(self, number: int) -> None:
        """The name server knows a broker, whose lease ends."""
        self.handle(QueryRoute(""))
        self.live.remove(self.brokers[number])

    def link(self, address: str) -> Link:
        for broker in self.brokers:
            if broker.address == address:
                return broker
        assert address == self.SERVERS, address
        return self.brokers[0]

    def give_up(self, address: str) -> None:
        """Does nothing."""

    def stored(self, topic: str) -> list[bytes]:
        """Bodies of a topic, in no order."""
        return [body for broker in self.brokers for body in broker.bodies(topic)]


def all_refuse(uses: Iterable[Callable[[], object]], told: str) -> None:
    """Each of these uses of a client raises ``InvalidRequest`` with this text."""
    for use in uses:
        with pytest.raises(InvalidRequest, match=told):
            use()
