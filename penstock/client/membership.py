"""One consumer's membership of its group at one broker: joins, watches, holds its queues, commits, leaves.

The watch is heartbeat and notice in one long poll: a new assignment reaches the member at once.
penstock/client/holdings.py decides what an assignment means; this module waits. If queues are handed over in two steps,
the next watch leaves when the program has released the revoked queues; heartbeats continue meanwhile.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar

import anyio

from penstock.client.attempts import Failed
from penstock.client.handover import Callback, Lease, Queues
from penstock.client.holdings import FENCED_MAX, LEAVE_S, NOTE_S, Holdings, Membership, lost_queues
from penstock.client.positions import UNSET
from penstock.client.pulling import Held, Intake, bounds_of, offset_of
from penstock.client.retry import BackOff
from penstock.client.wire_link import ask, call
from penstock.errors import Fenced, GroupNotFound, PenstockError, QueueNotFound, from_wire
from penstock.protocol.link import Link
from penstock.protocol.received import MessageQueue, ReceivedMessage, queue_named
from penstock.protocol.requests.groups import Assignment, CommitOffsets, LeaveGroup, QueueOffset, WatchGroup
from penstock.protocol.requests.retries import SendAllBack, SentAllBack, SentBack
from penstock.world import Clock, RealClock, Rng

_log = logging.getLogger(__name__)
_IN_CALLBACK: ContextVar[bool] = ContextVar("in a callback of a rebalance", default=False)


class Member:
    """A membership at one broker. ``run`` must run in a task; ``joined`` is set after the first assignment, or when it
    failed for good."""

    def __init__(
        self,
        who: Membership,
        broker: str,
        link: Link,
        topics: Sequence[str],
        intake: Intake,
        rng: Rng,
        clock: Clock | None = None,
    ) -> None:
        self.who = who
        self.broker = broker
        self.joined = anyio.Event()
        self.trouble: PenstockError | None = None
        self._link = link
        self._topics = tuple(topics)
        self._intake = intake
        self._rng = rng
        self._back_off = BackOff()
        self._holdings: Holdings[Held] = Holdings(intake.drop)
        self._applying = anyio.Lock()
        self._watching: anyio.CancelScope | None = None
        self._left = False
        self._is_new = True
        self._is_out = False
        self._tried = anyio.Event()  # set when a join has succeeded or failed
        self._lease = Lease(clock or RealClock(), who.session_s)

    @property
    def held(self) -> dict[str, Held]:
        """The queues held just now, by name."""
        return self._holdings.held

    def held_of(self, queue: MessageQueue) -> Held:
        """A queue that is held. Raises ``Fenced``."""
        self._holdings.check_held(self.who.group, [queue.name])
        return self.held[queue.name]

    def take_lost(self) -> list[str]:
        """Queues taken away with messages handed out and not committed, since the last call."""
        return self._holdings.take_lost()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Changes the subscription; takes effect with the next assignment."""
        if self._topics != tuple(topics):
            self._topics = tuple(topics)
            self._again()

    def move(self, link: Link) -> None:
        """The broker has another address: requests go there from now on, and the one under way is asked again there."""
        if link is not self._link:
            self._link = link
            for held in self.held.values():
                held.go_by(link)
            self._again()

    # -- staying in the group

    async def run(self) -> None:
        """Joins and watches until cancelled, whatever happens to the broker; an error that no repetition mends ends it
        and is handed to the intake."""
        failures = 0
        try:
            while not self._left:
                try:
                    with anyio.CancelScope() as self._watching:  # left when the topics change, and for good
                        await self._join()
                        self._tell_tried()
                        failures = 0
                        while True:
                            self._holdings.asking()
                            await self._look(self.who.watch_s)
                except (Fenced, GroupNotFound):
                    self._is_out = True
                except PenstockError as error:
                    self.trouble = error
                    if not error.retryable:
                        self._intake.fail(error)
                        return
                    self._tell_tried()
                    failures += 1
                    await anyio.sleep(self._back_off.wait_s(failures, self._rng))
        finally:
            self.joined.set()
            self._tried.set()

    def _tell_tried(self) -> None:
        self._tried.set()
        self._tried = anyio.Event()

    async def _join(self) -> None:
        if self.who.hand_over.ordered and self._lease.is_over:
            self._holdings.drop_all()
        elif self._is_out:
            self._holdings.drop_leaving()
        await self._tell_lost()
        sent = self._lease.now()
        join = self.who.join(self._topics, self.held, self.broker, is_first=self._is_new)
        self._holdings.asking()
        async with self._applying:
            assignment = await ask(self._link, join, Assignment)
            was_out, self._is_out = self._is_out, False
            self._renew(sent)
            await self._apply(assignment, was_out=was_out)
        self._is_new, self.trouble = False, None

    async def _look(self, wait_s: float) -> None:
        """Learns of another assignment; waits for one if there is none."""
        assignment = await self._watch(wait_s)
        async with self._applying:
            if assignment.generation > self._holdings.generation:
                await self._apply(assignment)

    async def _watch(self, wait_s: float) -> Assignment:
        """A sign of life. It names the generation that is carried out: all queues that this one took away are
        released."""
        sent = self._lease.now()
        watch = WatchGroup(self.who.group, self.who.member, self._holdings.carried_out, wait_s)
        assignment = await ask(self._link, watch, Assignment)
        self._renew(sent)
        return assignment

    def _renew(self, sent: float) -> None:
        was_over = self._lease.is_over
        self._lease.renew(sent)
        if was_over:
            self._intake.stir()

    async def leave(self) -> None:
        """Ends ``run``, releases the queues and leaves the group at the broker, so that others get them at once. Never
        fails."""
        self._left = True
        self._again()
        if self.held and self.who.hand_over.lets_go:
            with anyio.move_on_after(self.who.session_s):  # then another member gets them
                await self._let_go(list(self.held.values()))
        self._holdings.drop_all()
        with contextlib.suppress(PenstockError):
            await call(self._link, LeaveGroup(self.who.group, self.who.member), LEAVE_S)

    def _again(self) -> None:
        """Ends the watch under way: ``run`` begins anew."""
        if self._watching is not None:
            self._watching.cancel()

    async def _apply(self, assignment: Assignment, *, was_out: bool = False) -> None:
        """``was_out``: removed queues went while the broker did not know us; it is too late to release them."""
        hand_over = self.who.hand_over
        self.who.terms.hear(self.who.group, assignment.filter)
        change = self._holdings.change(assignment)
        is_lost = was_out or not hand_over.lets_go
        if change.going and not is_lost:
            await self._while_alive(lambda: self._let_go(change.going))
        new = [self._hold(one) for one in self._holdings.carry_out(change, is_lost=is_lost)]
        await self._tell_lost()
        try:
            await self._begin_unset([held for held in new if held.offset == UNSET])
        except (Fenced, QueueNotFound):
            return  # there is a newer generation already, and the next look brings it
        for held in new:
            self.held[held.queue.name] = held
        assigned = tuple(sorted(held.queue for held in new))
        if hand_over.on_assigned is not None and assigned:
            await self._while_alive(lambda: _call(hand_over.on_assigned, assigned))
        for held in new:
            if held.live:
                self._intake.pull(held)
        self.joined.set()

    # -- handing queues over

    async def _let_go(self, going: Sequence[Held]) -> None:
        """Hands out nothing more of these queues, waits until the program has finished its messages of them, and has it
        commit. Of a group that is not ordered the wait ends with the session."""
        for held in going:
            held.leave()
        patience_s = None if self.who.hand_over.ordered else self.who.session_s
        with anyio.move_on_after(patience_s) as patience:  # None: without end
            for held in going:
                await held.wait_idle()
            await self._commit_finished(going)
        queues = tuple(sorted(held.queue for held in going if held.live))
        if patience.cancelled_caught:
            _log.warning("the program works on %s for too long: others have it now", ", ".join(map(str, queues)))
            await _call(self.who.hand_over.on_lost, queues)
        else:
            await _call(self.who.hand_over.on_revoked, queues)

    async def _commit_finished(self, going: Sequence[Held]) -> None:
        """Stores what a handler has finished since it last committed."""
        done = {one.queue.name: one.passed for one in going if one.unfinished is not None and one.live}
        with contextlib.suppress(PenstockError):  # then it comes again, at the new holder
            await self.commit(done, forward=True)

    async def _while_alive(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does something that takes the program's time, with heartbeats. Raises ``Fenced`` where the broker has dropped
        us meanwhile."""
        dropped: list[PenstockError] = []

        async def beat() -> None:
            while not dropped:
                await anyio.sleep(self.who.watch_s)
                try:
                    await self._watch(0.0)
                except (Fenced, GroupNotFound) as error:
                    dropped.append(error)
                except PenstockError:
                    continue  # the broker may come back in time
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat)
            await work()
            tasks.cancel_scope.cancel()
        if dropped:
            raise dropped[0]

    async def _tell_lost(self) -> None:
        gone = self._holdings.take_gone()
        if gone and self.who.hand_over.on_lost is not None:
            await _call(self.who.hand_over.on_lost, gone)

    def _hold(self, one: QueueOffset) -> Held:
        queue = queue_named(self.broker, one.queue)
        held = Held(queue=queue, link=self._link, committed=one.offset, committing=one.offset)
        self._holdings.begin(held, self._lease if self.who.hand_over.ordered else None)
        return held

    async def _begin_unset(self, new: Sequence[Held]) -> None:
        """Finds where to begin in queues of which the group never committed an offset.

        Beginning at the end is committed at once: else a member that takes over before the first commit would begin at
        a later end and skip the messages in between. So is any beginning in an ordered group: a broker that begins anew
        knows by it that there may be holders.
        """
        if not new:
            return
        begun: dict[Held, int] = {}
        for held, bounds in zip(new, await bounds_of(self._link, [held.queue.name for held in new]), strict=True):
            held.begin(await offset_of(self._link, bounds, self.who.subscription.start_of(held.queue.topic)))
            if self.who.subscription.start == "latest" or self.who.hand_over.ordered:
                begun[held] = held.offset
        if begun:
            await self._commit(begun)

    # -- commits

    async def commit(self, offsets: Mapping[str, int] | None = None, *, forward: bool = False) -> None:
        """Stores how far messages were handed out in the queues that are still held, or these offsets; with ``forward``
        none that is covered already. Raises ``PenstockError``."""
        chosen = None if offsets is None else self._holdings.chosen(self.who.group, offsets, forward=forward)
        for _ in range(FENCED_MAX):
            wanted = self._holdings.wanted() if chosen is None else chosen
            if not wanted:
                return
            self._holdings.check_kept(self.who.group, wanted)
            try:
                await self._commit(wanted)
            except (Fenced, GroupNotFound):
                await self._learn()
            else:
                return
        raise Fenced(f"{self.broker} refuses the offsets of group {self.who.group}")

    async def _commit(self, wanted: dict[Held, int]) -> None:
        who, generation = self.who, self._holdings.generation
        offsets = self._holdings.storing(wanted)
        try:
            await call(self._link, CommitOffsets(who.group, who.member, generation, offsets))
        except BaseException:
            self._holdings.not_stored(wanted)
            raise
        self._holdings.stored(wanted)

    async def send_back(
        self, message: ReceivedMessage, after_s: float | None, reason: str, *, is_last: bool = False
    ) -> SentBack:
        """Gives a message of a held queue back; it may be passed when this returns. ``is_last``: it is a dead letter.
        Raises ``PenstockError``."""
        who, held = self.who, self.held_of(message.queue)
        for _ in range(FENCED_MAX):
            self._holdings.check_kept(who.group, [held])
            named = who.group, who.member, self._holdings.generation
            try:
                return await ask(
                    self._link, who.attempts.send_back(named, message, after_s, reason, is_last=is_last), SentBack
                )
            except (Fenced, GroupNotFound):
                await self._learn()
        raise Fenced(f"{self.broker} takes no message back from group {who.group}")

    async def send_all_back(self, failed: Sequence[Failed]) -> list[PenstockError | None]:
        """The same for several messages of any held queues; returns the outcome of each. Raises ``PenstockError``."""
        who = self.who
        errors: list[PenstockError | None] = [None] * len(failed)
        left = list(range(len(failed)))
        held = [self.held.get(one.message.queue.name) for one in failed]
        for _ in range(FENCED_MAX):
            for at in left:
                if (one := held[at]) is None or not one.live:
                    errors[at] = lost_queues(who.group, [failed[at].message.queue.name])
            left = [at for at in left if errors[at] is None]
            if not left:
                return errors
            named = who.group, who.member, self._holdings.generation
            rows = tuple([who.attempts.back(*failed[at]) for at in left])
            try:
                answer = await ask(self._link, SendAllBack(*named, rows, who.attempts.max), SentAllBack)
            except (Fenced, GroupNotFound):
                await self._learn()
                continue
            for at, row in zip(left, answer.rows, strict=True):
                errors[at] = from_wire(row.code, row.message) if row.code else None
            return errors
        raise Fenced(f"{self.broker} takes no message back from group {who.group}")

    async def note_attempts(self, messages: Sequence[ReceivedMessage]) -> None:
        """Stores how often messages were tried, for those that hold their queues later. Raises ``PenstockError``."""
        await call(self._link, self.who.note(messages, self._holdings.generation), NOTE_S)

    async def _learn(self) -> None:
        """After a refused commit: fetches the assignment, and joins again if the broker does not know us. It does not
        carry out an assignment that waits for the program. Raises ``PenstockError``."""
        try:
            if self.who.hand_over.lets_go or _IN_CALLBACK.get():
                await self._watch(0.0)
            else:
                await self._look(0.0)
        except (Fenced, GroupNotFound):
            if self._left or _IN_CALLBACK.get():  # the task that joins is over, or waits for this very callback
                self._holdings.drop_all()
                self._again()
            else:
                await self._come_back()

    async def _come_back(self) -> None:
        """Waits until ``run`` has joined again. Raises the error of the join."""
        self._is_out = True
        self._again()
        await self._tried.wait()
        if self._is_out and self.trouble is not None:
            raise self.trouble


async def _call(callback: Callback | None, queues: Queues) -> None:
    """Logs what a callback raises: the hand-over continues."""
    if callback is None or not queues:
        return
    token = _IN_CALLBACK.set(True)
    try:
        result = callback(queues)
        if inspect.isawaitable(result):
            await result
    except Exception:
        _log.exception("%s failed", getattr(callback, "__name__", callback))
    finally:
        _IN_CALLBACK.reset(token)
