"""A consumer group's member without an event loop and without threads.

Heartbeats and rebalances happen inside ``poll``, ``commit`` and iteration: a program that does none of these for
``session_s`` seconds loses its queues to other members. All else is as in penstock.Consumer.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType

from penstock.blocking.exchange import Exchange
from penstock.blocking.handling import Calls, Handling, Work
from penstock.blocking.member import Member
from penstock.blocking.orderly import Orderly
from penstock.blocking.pulls import WAIT_S_MAX, Pulls, bounds_of, offset_at, offset_since, one_by_one
from penstock.blocking.repeating import Repeating
from penstock.blocking.routes import Routes
from penstock.client.arguments import (
    OnlyBlocking,
    Place,
    Start,
    check_count,
    check_plain_handler,
    check_queue,
    check_wait,
    commit_of,
    queues_of,
    time_ms,
)
from penstock.client.attempts import ATTEMPTS_MAX, attempts_of, check_nack
from penstock.client.credentials import Tls, credentials_of
from penstock.client.handover import Callback, HandOver
from penstock.client.holdings import REFRESH_S, SESSION_S, Membership, fenced_if_lost, lost_queues, named
from penstock.client.jobs import FLOW, STOP_S
from penstock.client.positions import Position, PullLimits, chosen_tags, not_held
from penstock.client.retry import TIMEOUT_S
from penstock.client.subscription import LOOK_S, Subscription, Topics
from penstock.client.terms import terms_of
from penstock.client.unfinished import Flow
from penstock.errors import InvalidRequest, NoRoute, PenstockError
from penstock.protocol.addresses import SERVERS
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.retries import SentBack
from penstock.world import Clock, RealClock, Rng, new_rng
from topicmap.queues import retry_topic

_log = logging.getLogger(__name__)


class Consumer(OnlyBlocking):
    """A consumer as ``penstock.Consumer``, for ``with`` and ``for``. Args and errors are the same. One thread at a
    time."""

    def __init__(
        self,
        group: str,
        topics: Topics,
        *,
        servers: str | Sequence[str] = SERVERS,
        start: Start = "latest",
        tags: str | Iterable[str] = (),
        filter: str = "",
        strategy: str = "average",
        room: str = "",
        queues: Iterable[MessageQueue] = (),
        force: bool = False,
        attempts_max: int = ATTEMPTS_MAX,
        retry_delays_s: Iterable[float] | None = None,
        ordered: bool = False,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        session_s: float = SESSION_S,
        batch_max: int = 500,
        prefetch_bytes: int = 4 * 1024 * 1024,
        timeout_s: float = TIMEOUT_S,
        user: str = "",
        password: str = "",
        token: str = "",
        tls: Tls = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
        broadcast: bool = False,
        client: str = "",
    ) -> None:
        rng = rng or new_rng()
        group, name = named(group, broadcast, client, rng.getrandbits(64))
        self._subscription = Subscription(topics, start, retry_topic(group))
        self.topics = self._subscription.topics
        self._clock = clock or RealClock()
        self._rng = rng
        check_wait("timeout_s", timeout_s)
        self._repeating = Repeating(timeout_s, self._clock, self._rng, _log)
        credentials = credentials_of(user, password, token, tls)
        self._routes = Routes(servers, timeout_s, credentials)
        self._exchange = Exchange()
        limits = PullLimits(batch_max, prefetch_bytes, chosen_tags(tags), reader=group)
        self._pulls = Pulls(self._exchange, limits, self._clock, self._rng)
        terms = terms_of(filter, strategy, room, queues, force)
        attempts = attempts_of(attempts_max, retry_delays_s)
        hand_over = HandOver(ordered, on_assigned, on_revoked, on_lost).check_plain()
        self._who = Membership(group, name, self._subscription, session_s, terms, attempts, hand_over)
        self._members: dict[str, Member] = {}
        self._lost: list[str] = []  # by members at addresses where their broker is no more
        self._handling: Handling | None = None
        self._batch_max = batch_max
        self._look_again = 0.0
        self._open = False

    def __enter__(self) -> Consumer:
        """Joins the group. Raises ``Unavailable`` or ``TimedOut`` after ``timeout_s``."""
        try:
            self._repeating.run(self._find)
            self._repeating.run(self._join_all)
        except BaseException:
            self.close()
            raise
        self._open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the group and closes the connections."""
        for member in self._members.values():
            member.leave()
        self._open = False
        self._members.clear()
        self._routes.close()

    # -- messages

    def __iter__(self) -> Iterator[list[ReceivedMessage]]:
        """Batches, each of one queue, without end."""
        while True:
            batch = self.poll(WAIT_S_MAX)
            if batch:
                yield batch

    def messages(self) -> Iterator[ReceivedMessage]:
        """The messages one by one; a commit covers those that were returned."""
        while True:
            self._check_open()
            batch = self._pulls.take(WAIT_S_MAX, self._tend)
            if batch is not None:
                yield from one_by_one(batch)

    def poll(self, wait_s: float) -> list[ReceivedMessage]:
        """The next batch; an empty list after ``wait_s`` seconds. Raises ``PenstockError`` if retries cannot help."""
        self._check_open()
        check_wait("wait_s", wait_s)
        batch = self._pulls.take(wait_s, self._tend)
        return [] if batch is None else batch.hand_out()

    def handle(
        self,
        work: Callable[[ReceivedMessage], object],
        *,
        concurrency: int = 1,
        messages_max: int = FLOW.messages,
        bytes_max: int = FLOW.bytes,
        span_max: int = FLOW.span,
        stop_s: float = STOP_S,
    ) -> None:
        """Processes messages with a handler until ``stop``, which the handler or another thread may call. Args and
        errors as for ``penstock.Consumer.handle``. With a ``concurrency`` above 1 the handler runs in that number of
        threads, and this thread sends heartbeats; else it runs here, with heartbeats between two messages."""
        check_plain_handler(work)

        def work_one(messages: Sequence[ReceivedMessage]) -> None:
            work(messages[0])

        self._handle(work_one, concurrency, 1, Flow(messages_max, bytes_max, span_max), stop_s)

    def handle_batches(
        self,
        work: Callable[[Sequence[ReceivedMessage]], Iterable[ReceivedMessage] | None],
        *,
        concurrency: int = 1,
        messages_max: int = FLOW.messages,
        bytes_max: int = FLOW.bytes,
        span_max: int = FLOW.span,
        stop_s: float = STOP_S,
    ) -> None:
        """As ``handle``, with a handler like that of ``penstock.Consumer.handle_batches``."""
        check_plain_handler(work)
        self._handle(work, concurrency, self._batch_max, Flow(messages_max, bytes_max, span_max), stop_s)

    def _handle(self, work: Work, concurrency: int, size: int, flow: Flow, stop_s: float) -> None:
        check_count("concurrency", concurrency)
        check_wait("stop_s", stop_s)
        self._check_open()
        if self._handling is not None:
            raise InvalidRequest("this consumer already runs a handler")
        self._handling = self._new_handling(flow)
        try:
            self._handling.run(work, concurrency, size, stop_s)
        except BaseException:
            with contextlib.suppress(PenstockError):
                self._commit_passed()
            raise
        finally:
            self._handling = None
        self._repeating.run(self._commit_passed)

    def _new_handling(self, flow: Flow) -> Handling:
        if self._who.hand_over.ordered:
            bury = partial(self._send_back, is_last=True)
            calls = Calls(bury, self._commit_passed, self._tend, self._note_attempts)
            return Orderly(self._pulls, calls, flow, self._clock, self._rng, self._who.attempts)
        calls = Calls(self._send_back, self._commit_passed, self._tend)
        return Handling(self._pulls, calls, flow, self._clock, self._rng)

    def stop(self) -> None:
        """Ends ``handle``: it starts no further message, and returns when running calls are finished and committed."""
        handling = self._handling
        if handling is not None:
            handling.stop()

    def _commit_passed(self) -> None:
        for member in self._members.values():
            member.commit()
            if lost := member.take_lost():
                _log.info("%s went to other members with messages unfinished: they have them again", sorted(lost))

    # -- positions

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that this member reads now, sorted."""
        return tuple(sorted(held.queue for member in self._members.values() for held in member.held.values()))

    def commit(self, what: ReceivedMessage | Mapping[MessageQueue, int] | None = None) -> None:
        """Stores the group's offsets durably. Args and errors as for ``penstock.Consumer.commit``."""
        self._check_open()
        if what is not None:
            self._commit_places(commit_of(what), forward=isinstance(what, ReceivedMessage))
            return
        for member in self._members.values():
            self._repeating.run(member.commit)
        lost, self._lost = self._lost, []
        for member in self._members.values():
            lost += member.take_lost()
        fenced_if_lost(self._who.group, lost)

    def _commit_places(self, places: Mapping[MessageQueue, int], *, forward: bool) -> None:
        for member in self._members.values():
            mine = {queue.name: offset for queue, offset in places.items() if queue.broker == member.broker}
            if mine:
                self._repeating.run(partial(member.commit, mine, forward=forward))
        brokers = {member.broker for member in self._members.values()}
        fenced_if_lost(self._who.group, [queue.name for queue in places if queue.broker not in brokers])

    def nack(self, message: ReceivedMessage, after_s: float | None = None, *, reason: str = "") -> SentBack:
        """Returns a message to the broker for a retry, durably; after its last attempt it becomes a dead letter. Args,
        result and errors as for ``penstock.Consumer.nack``."""
        self._check_open()
        check_nack(message, after_s, reason)
        if self._who.hand_over.ordered:
            return self._hold_up(message, after_s, reason)
        return self._send_back(message, after_s, reason)

    def _hold_up(self, message: ReceivedMessage, after_s: float | None, reason: str) -> SentBack:
        """An ordered queue stays at a message, or goes on behind a dead letter."""
        if self._handling is not None:
            raise InvalidRequest("in an ordered group a handler raises Retry", hint="`nack` is for programs that read")
        held, attempts = self._member_of(message.queue).held_of(message.queue), self._who.attempts
        tried = held.tried(message)
        self._note_attempts([message.delivered(tried - message.attempts)])
        if tried >= attempts.max:
            self._send_back(message, None, reason, is_last=True)
            return SentBack(tried, 0)
        wait_s = attempts.hold_up_s(tried, after_s)
        self._pulls.hold_up(held, message.offset, wait_s)
        return SentBack(tried, self._clock.wall_ms() + round(wait_s * 1000))

    def _note_attempts(self, messages: Sequence[ReceivedMessage]) -> None:
        """As ``penstock.Consumer`` does."""
        try:
            self._member_of(messages[0].queue).note_attempts(messages)
        except PenstockError as error:
            _log.info("%s: its attempts are known to this member only: %s", messages[0].queue, error.message)

    def _send_back(
        self, message: ReceivedMessage, after_s: float | None, reason: str, *, is_last: bool = False
    ) -> SentBack:
        member = self._member_of(message.queue)
        sent: list[SentBack] = []
        self._repeating.run(lambda: sent.append(member.send_back(message, after_s, reason, is_last=is_last)))
        return sent[-1]

    def _member_of(self, queue: MessageQueue) -> Member:
        for member in self._members.values():
            if member.broker == queue.broker:
                return member
        raise lost_queues(self._who.group, [queue.name])

    def pause(self, queues: MessageQueue | Iterable[MessageQueue]) -> None:
        """Stops delivery from these queues until ``resume``. Raises ``QueueNotFound`` for a queue that this member does
        not hold."""
        self._check_open()
        for held in [self._find_held(queue)[1] for queue in queues_of(queues)]:
            held.pause()

    def resume(self, queues: MessageQueue | Iterable[MessageQueue]) -> None:
        """Goes on with queues that are paused. Raises ``QueueNotFound``."""
        self._check_open()
        for held in [self._find_held(queue)[1] for queue in queues_of(queues)]:
            held.paused = False

    @property
    def paused(self) -> tuple[MessageQueue, ...]:
        """The held queues that are paused, sorted."""
        held = [one for member in self._members.values() for one in member.held.values()]
        return tuple(sorted(one.queue for one in held if one.paused))

    def seek(self, queue: MessageQueue, place: Place) -> None:
        """Goes on reading a held queue at an offset, at either end, or at a time (``datetime``). Raises
        ``QueueNotFound`` and ``OffsetOutOfRange``."""
        self._check_open()
        member, held = self._find_held(queue)
        held.begin(offset_at(member.link, queue.name, place))

    def seek_time(self, stored: datetime | int) -> None:
        """Moves all held queues to the first message that was stored at or after a time (also in milliseconds since
        1970)."""
        self._check_open()
        stored_ms = time_ms("stored", stored)
        for member in self._members.values():
            for held in member.held.values():
                held.begin(offset_since(member.link, held.queue.name, stored_ms))

    def lag(self) -> dict[MessageQueue, int]:
        """The number of messages of each held queue that were not handed out yet."""
        self._check_open()
        lags: dict[MessageQueue, int] = {}
        for member in self._members.values():
            held = list(member.held.values())
            if held:
                bounds = bounds_of(member.link, [one.queue.name for one in held])
                lags.update({one.queue: bound.end - one.handed_out for one, bound in zip(held, bounds, strict=True)})
        return lags

    def _find_held(self, queue: MessageQueue) -> tuple[Member, Position]:
        check_queue(queue)
        for member in self._members.values():
            for held in member.held.values():
                if held.queue == queue:
                    return member, held
        raise not_held(queue)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidRequest("this consumer is not open", hint="use it inside `with Consumer(...) as c:`")

    # -- the group

    def _tend(self) -> None:
        """Heartbeats, rebalances, new brokers; what fails here is tried again later."""
        now = self._clock.monotonic()
        if now >= self._look_again:
            try:
                self._find()
            except PenstockError:
                self._look_again = now + WAIT_S_MAX
        for member in self._members.values():
            member.tend()

    def _join_all(self) -> None:
        for member in self._members.values():
            if not member.joined:
                member.join()

    def _find(self) -> None:
        """Joins at brokers that are new to us, leaves out those that have none of the topics any more."""
        subscription = self._subscription
        wanted = subscription.topics if subscription.pattern is None else subscription.chosen(self._routes.topics())
        for topic in wanted:
            try:
                subscription.found(topic, self._routes.topic(topic))
            except NoRoute as error:
                subscription.missed(topic, error)
        with contextlib.suppress(NoRoute):
            subscription.found_retries(self._routes.topic(subscription.retry_topic))
        subscription.opened(self._clock.wall_ms())
        topics, addresses = subscription.by_broker(wanted)
        for broker in self._members.keys() - topics.keys():
            self._members[broker].leave()
            self._lost += self._members.pop(broker).take_lost()
        for broker, here in topics.items():
            link = self._routes.link(addresses[broker])
            if broker in self._members:
                self._members[broker].move(link)
                self._members[broker].subscribe(here)
            else:
                self._members[broker] = Member(
                    self._who, broker, link, here, self._exchange, self._pulls, self._clock, self._rng
                )
        self._look_again = self._clock.monotonic() + (LOOK_S if subscription.waits else REFRESH_S)
