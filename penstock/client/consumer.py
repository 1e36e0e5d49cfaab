"""A consumer group's member, on asyncio and on trio.

It joins the group at every broker that has one of its topics and reads the queues that it is assigned there
(penstock/client/membership.py, penstock/client/pulling.py). Delivery is at least once: messages that were handed out
and not committed are delivered again, here or at another member. Heartbeats run in tasks of their own; leaving the
block leaves the group.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType

import anyio

from penstock.client.addressing import check_servers
from penstock.client.arguments import (
    OnlyAsync,
    Place,
    Start,
    check_count,
    check_handler,
    check_queue,
    check_seconds,
    commit_of,
    queues_of,
    time_ms,
)
from penstock.client.attempts import (
    ATTEMPTS_MAX,
    BACK_MAX,
    Failed,
    attempts_of,
    check_nack,
)
from penstock.client.credentials import Tls, credentials_of
from penstock.client.discovery import Discovery
from penstock.client.handling import Handling, Work
from penstock.client.handover import Callback, HandOver
from penstock.client.holdings import REFRESH_S, SESSION_S, Membership, fenced_if_lost, lost_queues, named
from penstock.client.jobs import FLOW, STOP_S
from penstock.client.membership import Member
from penstock.client.orderly import Orderly
from penstock.client.positions import PullLimits, chosen_tags, not_held
from penstock.client.pulling import Held, Intake, MessageStream, bounds_of, offset_at, offset_since
from penstock.client.repeating import Repeating
from penstock.client.retry import TIMEOUT_S
from penstock.client.subscription import LOOK_S, Subscription, Topics
from penstock.client.task_scope import TaskScope
from penstock.client.terms import terms_of
from penstock.client.unfinished import Flow
from penstock.client.wire_link import WireLinks
from penstock.errors import InvalidRequest, NoRoute, PenstockError, TimedOut
from penstock.protocol.addresses import SERVERS
from penstock.protocol.link import Links
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.retries import SentBack
from penstock.world import Clock, RealClock, Rng, new_rng
from topicmap.queues import retry_topic

_log = logging.getLogger(__name__)


class Consumer(OnlyAsync):
    """Reads topics together with the other members of a group. Use it with ``async with``; one task iterates.

    ``async for batch in consumer`` gives lists of messages, each of one queue; ``consumer.messages()`` one at a time.

    Args:
        group: name of the group; its members share the queues.
        topics: what to read, named as in ``Message``, or a pattern (``re.compile``) of whole names, which also finds
            topics that are made later; all members should say the same. A topic that is not there yet is waited for.
        servers: name servers, ``"host:port,host:port"`` or a list.
        start: where to begin in queues for which the group has committed no offset: ``"latest"``, ``"earliest"`` or a
            time (a ``datetime`` with a time zone, or milliseconds since 1970).
        tags: deliver only messages with this tag, or with one of these tags.
        filter: deliver only messages that match this SQL-92 selector over their properties. All members of a group have
            the same filter.
        strategy: how brokers assign their queues to the members: ``average``, ``circle``, ``hash``, ``configured``,
            ``room`` or ``nearest-room``; the same for all members.
        room: where this member is, for the strategies ``room`` and ``nearest-room``.
        queues: the queues that this member asks for with the strategy ``configured``.
        force: changes filter, strategy and attempts for the whole group if its other members have different ones.
        attempts_max: number of attempts after which a message becomes a dead letter; the same for all members.
        retry_delays_s: seconds that a returned message waits before its second attempt, its third, and so on; the
            broker's setting if left out.
        ordered: keeps the order of a key during processing: one member at a time processes a queue. A queue moves to
            another member when this one has asked for the next batch, has left, or its session has ended; a returned
            message (``nack``) blocks its queue. The same for all members, with the same ``session_s``.
        on_assigned: called with a tuple of the queues that this member got, before it reads them: it may seek.
        on_revoked: called with a tuple of the queues that move to other members or that this one leaves, when the
            program has asked for the next batch: it may commit. Others get the queues when it returns.
        on_lost: called with a tuple of the queues that other members may hold already: the session has ended, or there
            is no ``on_revoked``. Callbacks are plain or ``async`` functions; an exception in one is logged.
        session_s: seconds after its last heartbeat for which a member keeps its queues.
        batch_max: maximum number of messages per batch.
        prefetch_bytes: maximum bytes read ahead, over all queues.
        timeout_s: seconds after which entering the block, a commit or a seek fails.
        user, password: of the cluster's users; or ``token``, a JSON Web Token. The password is not sent. Left out: what
            the environment says (``PENSTOCK_USER`` and others).
        tls: true, the path of the authority's certificate, or an ``ssl.SSLContext``; left out as above.
        links: connections other than TCP, for programs that embed the servers.
        broadcast: this client reads all queues, like every other client of the group, and has its own positions.
        client: with ``broadcast``, a permanent name, under which the client continues at its last commit. Clients that
            run at the same time need different names.

    Raises:
        InvalidRequest: an argument is illegal.
        InvalidFilter: the filter cannot be parsed.
    """

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
        links: Links | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
        broadcast: bool = False,
        client: str = "",
    ) -> None:
        rng = rng or new_rng()
        group, name = named(group, broadcast, client, rng.getrandbits(64))
        self._subscription = Subscription(topics, start, retry_topic(group))
        self.topics = self._subscription.topics
        self._servers = servers
        self._links = links
        self._credentials = credentials_of(user, password, token, tls)
        self._clock = clock or RealClock()
        self._rng = rng
        self._limits = PullLimits(batch_max, prefetch_bytes, chosen_tags(tags), reader=group)
        check_servers(servers)
        check_seconds("timeout_s", timeout_s)
        self._timeout_s = timeout_s
        self._repeating = Repeating(timeout_s, self._clock, self._rng, _log)
        terms = terms_of(filter, strategy, room, queues, force)
        attempts = attempts_of(attempts_max, retry_delays_s)
        hand_over = HandOver(ordered, on_assigned, on_revoked, on_lost)
        self._who = Membership(group, name, self._subscription, session_s, terms, attempts, hand_over)
        self._members: dict[str, Member] = {}
        self._lost: list[str] = []  # by members at addresses where their broker is no more
        self._wires = TaskScope()
        self._tasks = TaskScope()
        self._committing = anyio.Lock()
        self._handling: Handling | None = None
        self._opened: tuple[Discovery, Intake] | None = None

    async def __aenter__(self) -> Consumer:
        """Joins the group. Raises ``Unavailable`` or ``TimedOut`` after ``timeout_s``."""
        await self._wires.open()
        await self._tasks.open()
        try:
            links = self._links or WireLinks(
                self._wires, clock=self._clock, rng=self._rng, credentials=self._credentials
            )
            discovery = Discovery(self._servers, links, clock=self._clock, fresh_s=REFRESH_S / 2)
            self._tasks.start_soon(discovery.keep_following)
            self._opened = (discovery, Intake(self._tasks, self._limits, self._rng))
            await self._repeating.run(self._find)
            await self._wait_joined()
            self._tasks.start_soon(self._keep_finding)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        """Ends the reading, leaves the group, closes the connections."""
        try:
            await self._tasks.close()
        finally:
            if self._opened is not None:
                self._opened[1].put_down()
            try:
                with anyio.CancelScope(shield=True):  # bounded: a leave has a deadline
                    async with anyio.create_task_group() as leaving:
                        for member in self._members.values():
                            leaving.start_soon(member.leave)
            finally:
                self._opened = None
                await self._wires.close()

    # -- messages

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> list[ReceivedMessage]:
        batch = await self._intake().next()
        if batch is None:
            raise StopAsyncIteration
        return batch.hand_out()

    def messages(self) -> MessageStream:
        """The messages one by one; a commit covers those that the stream has returned."""
        return MessageStream(self._intake())

    async def poll(self, wait_s: float) -> list[ReceivedMessage]:
        """The next batch; an empty list after ``wait_s`` seconds. Raises ``PenstockError`` if retries cannot help."""
        check_seconds("wait_s", wait_s)
        with anyio.move_on_after(wait_s):
            batch = await self._intake().next()
            return [] if batch is None else batch.hand_out()
        return []

    async def handle(
        self,
        work: Callable[[ReceivedMessage], Awaitable[object]],
        *,
        concurrency: int = 1,
        messages_max: int = FLOW.messages,
        bytes_max: int = FLOW.bytes,
        span_max: int = FLOW.span,
        stop_s: float = STOP_S,
    ) -> None:
        """Processes messages with a handler until ``stop``, several at a time. Commits automatically, in each queue up
        to the lowest unfinished message.

        Args:
            work: an ``async def`` that takes a message. If it returns, the message is done. If it raises, the message
                is returned as by ``nack``, with the exception as the reason; ``Retry`` sets the wait. If the broker
                cannot store the retry, the handler gets the message again.
            concurrency: maximum number of messages that the handler processes at a time.
            messages_max: maximum number of unfinished messages, including those that wait for the handler.
            bytes_max: maximum bytes of their bodies.
            span_max: maximum number of offsets between a queue's lowest unfinished message and the last one begun.
            stop_s: seconds after ``stop`` that running calls of the handler may take; then they are cancelled.

        Raises:
            InvalidRequest: an argument is illegal, the consumer is not open, or a handler runs already.
            PenstockError: an error that retries cannot correct, or the last commit failed: messages that were finished
                last may be delivered again.
        """
        check_handler(work)

        async def work_one(messages: Sequence[ReceivedMessage]) -> None:
            await work(messages[0])

        await self._handle(work_one, concurrency, 1, Flow(messages_max, bytes_max, span_max), stop_s)

    async def handle_batches(
        self,
        work: Callable[[Sequence[ReceivedMessage]], Awaitable[Iterable[ReceivedMessage] | None]],
        *,
        concurrency: int = 1,
        messages_max: int = FLOW.messages,
        bytes_max: int = FLOW.bytes,
        span_max: int = FLOW.span,
        stop_s: float = STOP_S,
    ) -> None:
        """As ``handle``, with a handler that takes a list of messages of one queue, at most ``batch_max``. It may
        return those that it did not finish: they go back to the broker. If it raises, all of them do. Args and errors
        as for ``handle``."""
        check_handler(work)
        flow = Flow(messages_max, bytes_max, span_max)
        await self._handle(work, concurrency, self._limits.batch_max, flow, stop_s)

    async def _handle(self, work: Work, concurrency: int, size: int, flow: Flow, stop_s: float) -> None:
        check_count("concurrency", concurrency)
        check_seconds("stop_s", stop_s)
        intake = self._intake()
        if self._handling is not None:
            raise InvalidRequest("this consumer already runs a handler")
        self._handling = self._new_handling(intake, flow)
        try:
            await self._handling.run(work, concurrency, size, stop_s)
        finally:
            self._handling = None
        await self._repeating.run(self._commit_passed)

    def _new_handling(self, intake: Intake, flow: Flow) -> Handling:
        if self._who.hand_over.ordered:
            bury, attempts = partial(self._send_back, is_last=True), self._who.attempts
            commit, note = self._commit_passed, self._note_attempts
            return Orderly(intake, bury, commit, flow, self._clock, self._rng, attempts, note)
        give_back, commit = self._send_back, self._commit_passed
        return Handling(intake, give_back, commit, flow, self._clock, self._rng, self._send_all_back)

    def stop(self) -> None:
        """Ends ``handle``: it starts no further message, and returns when running calls are finished and committed."""
        if self._handling is not None:
            self._handling.stop()

    async def _commit_passed(self) -> None:
        """Commits finished messages in all queues that are still held. Raises ``PenstockError``."""
        failure: PenstockError | None = None
        async with self._committing:
            for member in list(self._members.values()):
                try:
                    await member.commit()
                except PenstockError as error:
                    failure = error
                if lost := member.take_lost():
                    _log.info("%s moved to other members, which get the unfinished messages again", sorted(lost))
        if failure is not None:
            raise failure

    # -- positions

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that this member reads now, sorted."""
        return tuple(sorted(held.queue for held in self._held()))

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The offset of the next message that is handed out, of each held queue."""
        return {held.queue: held.handed_out for held in self._held()}

    async def commit(self, what: ReceivedMessage | Mapping[MessageQueue, int] | None = None) -> None:
        """Stores the group's offsets durably.

        Args:
            what: a message: commits it and all before it in its queue, and never moves back; or the next offset to read
                of each queue, which may move back; if left out, commits all messages handed out.

        Raises:
            Fenced: queues moved to other members before messages handed out from them were committed; the new holders
                get those messages again. Queues that this member still holds are committed.
            PenstockError: the commit may have failed; repeating it is safe.
        """
        self._intake()
        if what is not None:
            await self._commit_places(commit_of(what), forward=isinstance(what, ReceivedMessage))
            return
        async with self._committing:
            for member in list(self._members.values()):
                await self._repeating.run(member.commit)
        lost, self._lost = self._lost, []
        for member in self._members.values():
            lost += member.take_lost()
        fenced_if_lost(self._who.group, lost)

    async def _commit_places(self, places: Mapping[MessageQueue, int], *, forward: bool) -> None:
        async with self._committing:
            for member in list(self._members.values()):
                mine = {queue.name: offset for queue, offset in places.items() if queue.broker == member.broker}
                if mine:
                    await self._repeating.run(partial(member.commit, mine, forward=forward))
        brokers = {member.broker for member in self._members.values()}
        fenced_if_lost(self._who.group, [queue.name for queue in places if queue.broker not in brokers])

    async def nack(self, message: ReceivedMessage, after_s: float | None = None, *, reason: str = "") -> SentBack:
        """Returns a message to the broker for a retry: it is delivered again, to any member, with ``attempts`` one
        higher, or becomes a dead letter after its last attempt. Once this returns, that is durable, and a commit may
        cover the message. In an ordered group the queue waits at the message instead.

        Args:
            message: a message that was handed out and is not committed yet.
            after_s: seconds until the retry, at most 40 days; by ``retry_delays_s`` if left out.
            reason: text that a dead letter keeps.

        Returns:
            ``attempt``: number of attempts so far; ``due_ms``: time of the retry in milliseconds since 1970, 0 for a
            dead letter.

        Raises:
            Fenced: the queue moved to another member, which gets the message again.
            InvalidRequest: an argument is illegal.
            PenstockError: the message is not returned; if ``unknown``, it may be. Repeating the call is safe.
        """
        self._intake()
        check_nack(message, after_s, reason)
        if self._who.hand_over.ordered:
            return await self._hold_up(message, after_s, reason)
        return await self._send_back(message, after_s, reason)

    async def bury(self, message: ReceivedMessage, *, reason: str = "") -> None:
        """Makes a message a dead letter at once, however often it was tried: another attempt is of no use. Once this
        returns, that is durable, and a handler may return, or a commit cover the message. Args and errors as for
        ``nack``."""
        self._intake()
        check_nack(message, None, reason)
        await self._send_back(message, None, reason, is_last=True)

    async def _hold_up(self, message: ReceivedMessage, after_s: float | None, reason: str) -> SentBack:
        """Makes an ordered queue wait at a message, or continue after a dead letter."""
        if self._handling is not None:
            raise InvalidRequest("in an ordered group a handler raises Retry", hint="`nack` is for programs that read")
        held, attempts = self._member_of(message.queue).held_of(message.queue), self._who.attempts
        tried = held.tried(message)
        await self._note_attempts([message.delivered(tried - message.attempts)])
        if tried >= attempts.max:
            await self._send_back(message, None, reason, is_last=True)
            return SentBack(tried, 0)
        wait_s = attempts.hold_up_s(tried, after_s)
        held.hold_up_for(message.offset, wait_s)
        return SentBack(tried, self._clock.wall_ms() + round(wait_s * 1000))

    async def _note_attempts(self, messages: Sequence[ReceivedMessage]) -> None:
        """Stores the attempts, so that the next holder of an ordered queue counts on. If the broker cannot store them
        now, the next attempt stores the whole number."""
        try:
            await self._member_of(messages[0].queue).note_attempts(messages)
        except PenstockError as error:
            _log.info("%s: its attempts are known to this member only: %s", messages[0].queue, error.message)

    async def _send_back(
        self, message: ReceivedMessage, after_s: float | None, reason: str, *, is_last: bool = False
    ) -> SentBack:
        sent: list[SentBack] = []
        member = self._member_of(message.queue)

        async def send() -> None:
            sent.append(await member.send_back(message, after_s, reason, is_last=is_last))

        await self._repeating.run(send)
        return sent[-1]

    async def _send_all_back(self, failed: Sequence[Failed]) -> list[PenstockError | None]:
        """Returns messages of any queues, with few requests to each broker."""
        errors: list[PenstockError | None] = [None] * len(failed)
        by_broker: dict[str, list[int]] = {}
        for at, one in enumerate(failed):
            by_broker.setdefault(one.message.queue.broker, []).append(at)

        async def send(mine: list[int]) -> None:
            some = [failed[at] for at in mine]
            answers: list[list[PenstockError | None]] = []

            async def once() -> None:
                answers.append(await self._member_of(some[0].message.queue).send_all_back(some))

            try:
                await self._repeating.run(once)
                found = answers[-1]
            except PenstockError as error:
                found = [error] * len(mine)
            for at, became in zip(mine, found, strict=True):
                errors[at] = became

        async with anyio.create_task_group() as tasks:
            for mine in by_broker.values():
                for first in range(0, len(mine), BACK_MAX):
                    tasks.start_soon(send, mine[first : first + BACK_MAX])
        return errors

    def _member_of(self, queue: MessageQueue) -> Member:
        for member in self._members.values():
            if member.broker == queue.broker:
                return member
        raise lost_queues(self._who.group, [queue.name])

    def pause(self, queues: MessageQueue | Iterable[MessageQueue]) -> None:
        """Stops delivery from these queues, and reading ahead, until ``resume``. If a queue moves to another member,
        that member reads it. Raises ``QueueNotFound`` for a queue that this member does not hold."""
        self._intake()
        for held in [self._find_held(queue) for queue in queues_of(queues)]:
            held.pause()

    def resume(self, queues: MessageQueue | Iterable[MessageQueue]) -> None:
        """Continues with paused queues. Raises ``QueueNotFound`` for a queue that this member does not hold."""
        self._intake()
        for held in [self._find_held(queue) for queue in queues_of(queues)]:
            held.resume()

    @property
    def paused(self) -> tuple[MessageQueue, ...]:
        """The held queues that are paused, sorted."""
        return tuple(sorted(held.queue for held in self._held() if held.paused))

    async def seek(self, queue: MessageQueue, place: Place) -> None:
        """Continues reading a queue at an offset, at ``"earliest"`` or ``"latest"``, or at a time (``datetime``).

        Raises:
            QueueNotFound: this member does not hold the queue.
            OffsetOutOfRange: the offset is outside the queue; the error names the bounds.
            PenstockError: the broker did not answer.
        """
        self._intake()
        held = self._find_held(queue)
        held.begin(await offset_at(held.link, queue.name, place))

    async def seek_time(self, stored: datetime | int) -> None:
        """Continues reading all held queues at the first message stored at or after a time (a ``datetime``, or
        milliseconds since 1970). Raises ``PenstockError`` if a broker does not answer."""
        self._intake()
        stored_ms = time_ms("stored", stored)
        for held in self._held():
            held.begin(await offset_since(held.link, held.queue.name, stored_ms))

    async def lag(self) -> dict[MessageQueue, int]:
        """The number of messages in each held queue that were not handed out yet. Raises ``PenstockError`` if a broker
        does not answer."""
        self._intake()
        lags: dict[MessageQueue, int] = {}
        for member in list(self._members.values()):
            held = list(member.held.values())
            if held:
                bounds = await bounds_of(held[0].link, [one.queue.name for one in held])
                lags.update({one.queue: bound.end - one.handed_out for one, bound in zip(held, bounds, strict=True)})
        return lags

    def _held(self) -> list[Held]:
        return [held for member in self._members.values() for held in member.held.values()]

    def _find_held(self, queue: MessageQueue) -> Held:
        check_queue(queue)
        for held in self._held():
            if held.queue == queue:
                return held
        raise not_held(queue)

    # -- brokers

    def _intake(self) -> Intake:
        if self._opened is None:
            raise InvalidRequest("this consumer is not open", hint="use it inside `async with Consumer(...) as c:`")
        return self._opened[1]

    async def _wait_joined(self) -> None:
        with anyio.move_on_after(self._timeout_s):
            for member in self._members.values():
                await member.joined.wait()
        for member in self._members.values():
            if not member.joined.is_set() or (member.trouble is not None and not member.trouble.retryable):
                raise member.trouble or TimedOut(f"{member.broker} did not let us join within {self._timeout_s:g} s")

    async def _keep_finding(self) -> None:
        while True:
            await anyio.sleep(LOOK_S if self._subscription.waits else REFRESH_S)
            try:
                await self._find()
            except PenstockError:
                continue  # the members that we have go on; who they cannot reach they say themselves

    async def _find(self) -> None:
        """Joins at brokers that are new to us, leaves out those that have none of the topics any more."""
        assert self._opened is not None
        discovery, intake = self._opened
        subscription = self._subscription
        wanted = subscription.topics if subscription.pattern is None else subscription.chosen(await discovery.topics())
        for topic in wanted:
            try:
                subscription.found(topic, await discovery.brokers(topic))
            except NoRoute as error:
                subscription.missed(topic, error)
        with contextlib.suppress(NoRoute):
            subscription.found_retries(await discovery.brokers(subscription.retry_topic))
        subscription.opened(self._clock.wall_ms())
        topics, addresses = subscription.by_broker(wanted)
        for broker in self._members.keys() - topics.keys():
            await self._members[broker].leave()
            self._lost += self._members.pop(broker).take_lost()
        for broker, here in topics.items():
            link = discovery.link(addresses[broker])
            if broker in self._members:
                self._members[broker].move(link)
                self._members[broker].subscribe(here)
            else:
                member = Member(self._who, broker, link, here, intake, self._rng, self._clock)
                self._members[broker] = member
                self._tasks.start_soon(member.run)
