"""A real broker on a simulated disk, and the name server before it, as the links of gateways in one process.

A request is carried out as it is submitted; its reply comes when the link is flushed. A test may hold replies back,
refuse requests, and look into what the broker has. Brokers that have joined are known to the same name server.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from broker.sessions.requests import SessionRequests
from broker.shares.requests import ShareRequests
from broker.state import BrokerState
from broker.store.segment import segment_path
from penstock.clock import Clock
from penstock.errors import PenstockError, Unavailable
from penstock.protocol.link import Link, OnResult
from penstock.protocol.message import ANY_QUEUE, FRAME_HEAD_BYTES, Message, decode_batch, encode_message
from penstock.protocol.requests.filters import CloseFilters, FetchRetained
from penstock.protocol.requests.groups import CommitOffsets, QueueOffset
from penstock.protocol.requests.messages import Append, Appended, AppendRuns, Pull, Refused
from penstock.protocol.requests.request import Done, Request, Result
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, Route
from penstock.protocol.requests.sessions import HOME_TOPIC, KeepSessions
from penstock.protocol.requests.topics import Bounds
from penstock.protocol.runs import Run, checksum_of, decode_runs, encode_runs
from tests.broker.broker_rig import Rig, messages
from topicmap.queues import AUDIT_TOPIC

BEGIN_S = 1000.0
"""What the clock of the gateways shows when that of the broker shows 0."""

FILLER = "filler"
DEFAULTS: dict[str, Any] = {"default_queues": 1, "segment_bytes": 1 << 24, "ahead_bytes": 0}
RETAINING: dict[str, Any] = {"segment_bytes": 1 << 14, "retention_bytes": 1 << 15}
"""Settings of a broker whose log is so short that a test can fill it."""


class Question:
    """A request that a gateway has made, and what the broker has answered. ``is_held``: its reply is held back.
    ``session``: with the broker, of this request alone."""

    def __init__(self, session: int, request: Request, on_result: OnResult) -> None:
        self.session = session
        self.request = request
        self.on_result = on_result
        self.result: Result | None = None
        self.is_held = False


class LinkedBroker:
    """A broker, as ``Links`` and as the link to it.

    Attributes:
        requests: what gateways have asked for, in order.
        unanswered: the questions whose replies have not been handed out.
        answers: kinds of requests that are not carried out, and their replies.
        refuses: kinds of requests that are not carried out, and the errors that they end in.
        silent: kinds of requests that are not carried out and never answered.
        holds: kinds of requests whose replies are held back until ``let_go``: those that the broker can answer at once.
        stalled: pulls that come to the broker with ``go_on``.
        holds_replies: whether all replies are held back until ``release``.
        answers_at_once: whether replies come within ``submit`` where the broker has them by then.
        refused_records: messages of the next append that are refused, by their place in it.
        has_brokers: whether the name server knows a broker.
    """

    answers_at_once = False

    def __init__(self, clock: Clock, name: str = "b", address: str = "broker:1", **settings: Any) -> None:
        self.clock = clock
        self.name = name
        self.address = address
        self._settings = {"name": name, **DEFAULTS, **settings}
        set_ms = clock.wall_ms() - int(self.now_s * 1000)
        self.rig = Rig(started_at=self.now_s, set_ms=set_ms, **self._settings)
        self.cluster = [self]
        self.requests: list[Request] = []
        self.unanswered: list[Question] = []
        self.answers: dict[type[Request], Result] = {}
        self.refuses: dict[type[Request], PenstockError] = {}
        self.silent: set[type[Request]] = set()
        self.holds: tuple[type[Request], ...] = ()
        self.stalled: list[Question] = []
        self.holds_replies = False
        self.refused_records: dict[int, PenstockError] = {}
        self.has_brokers = True
        self._ready: list[Question] = []
        self._kept_back: list[Question] = []
        self._epochs = self._sessions = 0

    @property
    def state(self) -> BrokerState:
        """What the broker knows by its log."""
        return self.rig.state

    @property
    def shares(self) -> ShareRequests:
        """What the broker knows of shared subscriptions."""
        return self.rig.theme(ShareRequests)

    @property
    def kept_back(self) -> list[Request]:
        """The requests whose replies are held back by their kind or queue."""
        return [question.request for question in self._kept_back]

    @property
    def now_s(self) -> float:
        """The broker's own monotonic clock."""
        return self.clock.monotonic() - BEGIN_S

    def new_epoch(self) -> str:
        """A name for an epoch of a gateway."""
        self._epochs += 1
        return f"epoch-{self._epochs}"

    def joins(self, first: LinkedBroker) -> None:
        """It is one of the brokers of this cluster from now on."""
        first.cluster.append(self)
        self.cluster = first.cluster

    # ------------------------------------------------------------ Links and Link

    def link(self, address: str) -> Link:
        return next((one for one in self.cluster if one.address == address), self)

    def give_up(self, address: str) -> None:
        """Does nothing: the test that takes a broker away answers what waits for it."""

    def submit(self, request: Request, on_result: OnResult) -> None:
        request = request.for_wire()
        self.requests.append(request)
        question = self._question(request, on_result)
        question.is_held = isinstance(request, self.holds)
        self.unanswered.append(question)
        kind = type(request)
        if kind in self.silent:
            return
        if kind in self.refuses:
            self._answered(question, self.refuses[kind])
        elif kind in self.answers:
            self._answered(question, self.answers[kind])
        elif isinstance(request, QueryRoute):
            self._answered(question, self._route(request.topic))
        else:
            self._carry_out(request, question)

    def _question(self, request: Request, on_result: OnResult) -> Question:
        self._sessions += 1
        return Question(self._sessions, request, on_result)

    def _carry_out(self, request: Request, question: Question) -> None:
        on_result = partial(self._answered, question)
        refused = self._refused(request) if isinstance(request, AppendRuns) else {}
        if refused:
            request = _without(request, set(refused))
            on_result = partial(self._answered_in_part, question, refused)
        self._set_clock()
        parked = self.rig.dispatch.parked
        self.rig.dispatch.submit(request, on_result, question.session)
        if self.rig.dispatch.parked > parked:
            question.is_held = False
        if self.answers_at_once and not self.holds_replies:
            self.settle()
            if question in self._ready:
                self._ready.remove(question)
                self._hand_out(question)

    def flush(self) -> None:
        for one in self.cluster:
            if not one.holds_replies:
                one.release()

    def release(self) -> None:
        """Hands out the replies that there are, and those to what they bring about."""
        self.settle()
        while self._ready:
            ready, self._ready = self._ready, []
            for question in ready:
                self._hand_out(question)
            self.settle()

    def settle(self) -> None:
        """What is stored reaches the disk, and wakes those who wait for it."""
        self._set_clock()
        self.rig.dispatch.end_batch()
        if self.rig.store.durable < self.rig.store.written:
            self.rig.sync()

    def _refused(self, request: AppendRuns) -> dict[int, PenstockError]:
        """What of this append is to be refused."""
        refused = {at: error for at, error in self.refused_records.items() if at < request.count}
        for at in refused:
            del self.refused_records[at]
        return refused

    def _answered(self, question: Question, result: Result) -> None:
        if question not in self.unanswered:
            return
        question.result = result
        (self._kept_back if question.is_held else self._ready).append(question)

    def _answered_in_part(self, question: Question, refused: dict[int, PenstockError], result: Result) -> None:
        assert isinstance(result, Appended), result
        rows = tuple([Refused(at, error.code, error.message) for at, error in refused.items()])
        self._answered(question, Appended(result.level, (), rows))

    def ignore(self, *kinds: type[Request]) -> None:
        """Requests of these kinds get no answer any more, those that wait for one neither."""
        self.silent.update(kinds)
        for one in [one for one in self.unanswered if isinstance(one.request, kinds)]:
            self.unanswered.remove(one)
            self.rig.dispatch.drop(one.session)

    def divert(self, on_result: OnResult) -> list[Result]:
        """What would be handed to this receiver goes to the list that is returned."""
        diverted: list[Result] = []
        for question in self.unanswered:
            if question.on_result == on_result:
                question.on_result = diverted.append
        return diverted

    def answer(self, kind: type[Request], result: Result) -> None:
        """The open requests of this kind end in this result, whatever the broker says."""
        for question in [one for one in self.unanswered if isinstance(one.request, kind)]:
            self.unanswered.remove(question)
            self.rig.dispatch.drop(question.session)
            question.on_result(result)

    def _hand_out(self, question: Question) -> None:
        assert question.result is not None
        self.unanswered.remove(question)
        question.on_result(question.result)

    def _route(self, topic: str) -> Route:
        here = [
            BrokerRoute(one.name, one.address, 4)
            for one in self.cluster
            if self.has_brokers and (not topic or one.rig.state.topics.get(topic) is not None)
        ]
        return Route(tuple(here))

    # ------------------------------------------------------------ replies that are held back

    def let_go(self) -> None:
        """The replies that were held back by their kind may go."""
        self.holds = ()
        for question in self.unanswered:
            question.is_held = False
        self._ready += self._kept_back
        self._kept_back = []

    def stall(self, queue: str) -> None:
        """The pulls of this queue that wait are as good as on their way: they come to the broker with ``go_on``."""
        for at, one in enumerate(self.unanswered):
            if isinstance(one.request, Pull) and one.request.queue == queue and one.result is None:
                self.rig.dispatch.drop(one.session)
                self.unanswered[at] = self._question(one.request, one.on_result)
                self.stalled.append(self.unanswered[at])

    def go_on(self) -> None:
        """What was stalled arrives."""
        stalled, self.stalled = self.stalled, []
        for question in stalled:
            self._carry_out(question.request, question)

    def let_first_go(self) -> None:
        """The oldest of these may."""
        self._ready.append(self._kept_back.pop(0))

    def lose_first(self, result: Result) -> None:
        """What the oldest of these asked for has been done, but this is its reply."""
        self._kept_back[0].result = result

    @property
    def held_replies(self) -> int:
        """How many replies ``holds_replies`` holds back."""
        self.settle()
        return len(self._ready)

    def give(self, at: int = 0) -> None:
        """Hands out one of these."""
        self.settle()
        self._hand_out(self._ready.pop(at))

    def lose_kept_back(self, error: PenstockError) -> None:
        """The link breaks: what was asked has been done, but its replies never come."""
        for question in self._kept_back:
            question.result = error
        self.let_go()

    # ------------------------------------------------------------ what it was asked and what it has

    def made(self, kind: type[Any]) -> list[Any]:
        """The requests of this kind, in order."""
        return [request for request in self.requests if isinstance(request, kind)]

    def waiting(self, kind: type[Any]) -> list[Any]:
        """The requests of this kind that have no reply yet."""
        return [question.request for question in self.unanswered if isinstance(question.request, kind)]

    def messages(self) -> list[Message]:
        """What clients and programs have stored, in the order of the log."""
        self.settle()
        return [one for one in messages(self.rig) if one.topic not in (HOME_TOPIC, AUDIT_TOPIC, FILLER)]

    def bodies(self) -> list[bytes]:
        """Bodies of these messages."""
        return [message.body for message in self.messages()]

    def retained(self) -> list[str]:
        """The MQTT names of retained messages."""
        names: list[str] = []
        for wanted in ("#", "$SYS/#"):
            page = self.ask(FetchRetained(wanted))
            names += [message.name for _, message in decode_batch(page.count, page.body)]
        return names

    def positions(self, group: str) -> dict[str, int]:
        """The positions of a group, by queue."""
        return dict(self.state.offsets.of(group))

    def commit(self, group: str, offsets: dict[str, int]) -> None:
        """A tool sets positions of a group."""
        rows = tuple([QueueOffset(queue, offset) for queue, offset in offsets.items()])
        assert isinstance(self.ask(CommitOffsets(group, "", 0, rows)), Done)

    def filters(self) -> list[str]:
        """The MQTT filters that are open; of shared subscriptions the plain ones."""
        return self.rig.state.filters.open

    def bounds(self, queue: str) -> Bounds:
        """The first offset of a queue, and the one behind its last message."""
        self.settle()
        return self.rig.store.bounds(queue)

    # ------------------------------------------------------------ what others do to it

    def ask(self, request: Request) -> Any:
        """Carries out a request that comes from no gateway; returns the answer."""
        self._set_clock()
        return self.rig.ask(request)

    def produce(self, *produced: Message, queue_id: int = ANY_QUEUE) -> None:
        """Native producers' messages."""
        records = [encode_message(one, queue_id=queue_id) for one in produced]
        stored = self.ask(Append(len(records), False, b"".join(records)))
        assert isinstance(stored, Appended), stored
        assert not stored.refused, stored
        self.release()

    def pass_time(self) -> None:
        """What the broker does by the clock."""
        for one in self.cluster:
            one._set_clock()
            one.rig.dispatch.tick()

    def leave_alone(self, owner: str) -> None:
        """An owner is as good as dead: its sessions are anybody's."""
        sessions, now = self.rig.theme(SessionRequests), self.rig.times.monotonic()
        sessions.keep(KeepSessions(owner, 1e-9), now - 1, self.rig.times.wall_ms())

    def outlive(self, gateway: str) -> None:
        """A gateway has died, and its leases are over."""
        self.leave_alone(gateway)
        known = self.rig.state.filters
        for owner in [one for one in known.owners if one.startswith(f"{gateway}/")]:
            self.ask(CloseFilters(owner, tuple(known.held_by(owner))))

    def lose_filter(self, filter: str) -> None:
        """A filter closes for all its owners, as if they had been silent for too long."""
        for owner in list(self.rig.state.filters.owners_of(filter)):
            self.ask(CloseFilters(owner, (filter,)))

    def lose_log(self) -> None:
        """The broker comes back with an empty disk. What waited ends with an unknown result."""
        set_ms = self.clock.wall_ms() - int(self.now_s * 1000)
        self.rig = Rig(started_at=self.now_s, set_ms=set_ms, **self._settings)
        self._break_off()

    def restart_over_rot(self, place: int) -> None:
        """The broker is killed, a bit of the record at this position in the log flips, and it starts again."""
        base = max(one for one in self.rig.store.log.bases if one <= place)
        self.rig.disk.kill()
        self.rig.disk.flip(segment_path(base), place - base + FRAME_HEAD_BYTES)
        self.rig = self.rig.restarted()
        self._set_clock()
        self._break_off()

    def _break_off(self) -> None:
        waiting, self.unanswered = self.unanswered, []
        for question in waiting:
            question.on_result(Unavailable("the connection was lost").with_fate(True))

    def border(self) -> int:
        """Fills the log up to the next segment; where that begins."""
        at = self.rig.store.log.active.base
        while self.rig.store.log.active.base == at:
            self._fill()
        return self.rig.store.log.active.base

    def lose_before(self, position: int) -> None:
        """So much more is stored that retention removes the log before a border."""
        while self.rig.store.start < position:
            self._fill()
            self.rig.dispatch.tick()

    def _fill(self) -> None:
        self.produce(Message(topic=FILLER, body=bytes(self.rig.settings.segment_bytes // 5)))

    def limit_sessions(self, bytes_max: int) -> None:
        """So much is kept of all sessions from now on; a restart with another setting would do the same."""
        object.__setattr__(self.rig.settings, "sessions_bytes_max", bytes_max)

    def _set_clock(self) -> None:
        now = self.rig.clock.now = self.now_s
        self.rig.clock.set_ms = self.clock.wall_ms() - int(now * 1000)


def _without(request: AppendRuns, places: set[int]) -> AppendRuns:
    """An append without the messages at these places."""
    kept: list[Run] = []
    at = 0
    for run in decode_runs(bytes(request.body)):
        for number, body in enumerate(run.bodies):
            if at not in places:
                kept.append(run.of([body], number))
            at += 1
    body = encode_runs(kept)
    return AppendRuns(len(kept), checksum_of(body), body, request.gateway_epoch, request.attempt)
