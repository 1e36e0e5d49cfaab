"""One blocking consumer's membership of its group at one broker.

Its watch stays open at the broker between calls; ``tend`` looks after it. penstock/client/holdings.py decides what an
assignment changes. Where queues are handed over in two steps, ``tend`` carries an assignment out when no handler is at
work in those that go; until then it sends heartbeats.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence

from penstock.blocking.exchange import Exchange
from penstock.blocking.link import BlockingLink
from penstock.blocking.pulls import Pulls, bounds_of, offset_of
from penstock.client.handover import Callback, Lease, Queues
from penstock.client.holdings import FENCED_MAX, LEAVE_S, NOTE_S, Change, Holdings, Membership
from penstock.client.positions import UNSET, Position
from penstock.client.retry import BackOff
from penstock.errors import Fenced, GroupNotFound, PenstockError, QueueNotFound
from penstock.protocol.received import MessageQueue, ReceivedMessage, queue_named
from penstock.protocol.requests.groups import Assignment, CommitOffsets, LeaveGroup, QueueOffset, WatchGroup
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.retries import SentBack
from penstock.world import Clock, Rng

_log = logging.getLogger(__name__)


class Member:
    """A membership at one broker. ``joined`` tells whether it has an assignment."""

    def __init__(
        self,
        who: Membership,
        broker: str,
        link: BlockingLink,
        topics: Sequence[str],
        exchange: Exchange,
        pulls: Pulls,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.who = who
        self.broker = broker
        self.link = link
        self.joined = False
        self._topics = tuple(topics)
        self._exchange = exchange
        self._pulls = pulls
        self._clock = clock
        self._rng = rng
        self._back_off = BackOff()
        self._holdings: Holdings[Position] = Holdings(pulls.drop)
        self._watch = 0  # number of the watch whose answer counts; 0 while none is open
        self._watches = 0
        self._watch_late = 0.0
        self._is_new = True
        self._is_out = False
        self._failures = 0
        self._not_before = 0.0
        self._lease = Lease(clock, who.session_s)
        self._change: Change[Position] | None = None  # an assignment that waits for handlers, since when
        self._change_came = 0.0
        self._beat_at = 0.0
        self._is_calling = False

    @property
    def held(self) -> dict[str, Position]:
        return self._holdings.held

    def held_of(self, queue: MessageQueue) -> Position:
        """A queue that is held. Raises ``Fenced``."""
        self._holdings.check_held(self.who.group, [queue.name])
        return self.held[queue.name]

    def take_lost(self) -> list[str]:
        """Queues taken away with messages handed out and not committed, since the last call."""
        return self._holdings.take_lost()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Changes the subscription; takes effect with the next ``tend``."""
        if self._topics != tuple(topics):
            self._topics, self.joined = tuple(topics), False

    def move(self, link: BlockingLink) -> None:
        """The broker has another address: requests go there from now on."""
        if link is not self.link:
            self.link, self.joined = link, False
            for position in self.held.values():
                self._pulls.add(position, link)

    def join(self) -> None:
        """Enters the group, or enters it again. Raises ``PenstockError``."""
        self._watch = 0
        if self.who.hand_over.ordered and self._lease.is_over:
            self._drop_all()
        elif self._is_out:
            self._change = None
            self._holdings.drop_leaving()
        self._tell_lost()
        sent = self._lease.now()
        self._holdings.asking()
        assignment = self.link.ask(
            self.who.join(self._topics, self.held, self.broker, is_first=self._is_new), Assignment
        )
        was_out, self._is_out = self._is_out, False
        self._lease.renew(sent)
        self._is_new = False
        self._apply(assignment, was_out=was_out)

    def tend(self) -> None:
        """Joins if it is out, and keeps one watch open. Raises what no repetition mends."""
        now = self._clock.monotonic()
        if now < self._not_before:
            return
        if self._watch and now > self._watch_late:
            self.link.close()  # a server that does not answer its long poll in time is as good as gone
            self._watch, self.joined = 0, False
        try:
            if not self.joined:
                self.join()
            elif self._change is not None:
                self._go_on(self._change)
            self._failures = 0
        except PenstockError as error:
            self._trouble(error)
        if self.joined and not self._watch and (self._change is None or now >= self._beat_at):
            self._open_watch(now)

    def leave(self) -> None:
        """Tells the broker, so that others get the queues at once. Never fails."""
        self.joined, self._watch = False, 0
        if self.held and self.who.hand_over.lets_go:
            self._let_go(list(self.held.values()))
        self._drop_all()
        with contextlib.suppress(PenstockError):
            self.link.call(LeaveGroup(self.who.group, self.who.member), LEAVE_S)

    # -- assignments

    def _open_watch(self, now: float) -> None:
        self._watches += 1
        number = self._watch = self._watches
        wait_s = self.who.watch_s if self._change is None else 0.0
        self._watch_late = now + wait_s + self.link.timeout_s
        self._beat_at = now + self.who.watch_s
        self._holdings.asking()
        watch = WatchGroup(self.who.group, self.who.member, self._holdings.carried_out, wait_s)
        self._exchange.submit(self.link, [(watch, lambda result: self._watched(number, now, result))])

    def _watched(self, number: int, sent: float, result: Result) -> None:
        if number != self._watch:
            return
        self._watch = 0
        try:
            if isinstance(result, PenstockError):
                raise result
            assert isinstance(result, Assignment)
            self._lease.renew(sent)
            if self._change is None and result.generation > self._holdings.generation:
                self._apply(result)
        except PenstockError as error:
            self._trouble(error)

    def _trouble(self, error: PenstockError) -> None:
        self.joined = False
        if isinstance(error, Fenced | GroupNotFound):
            self._is_out = True
        elif not error.retryable:
            raise error
        self._failures += 1
        self._not_before = self._clock.monotonic() + self._back_off.wait_s(self._failures, self._rng)

    def _drop_all(self) -> None:
        self._change = None
        self._holdings.drop_all()

    def _apply(self, assignment: Assignment, *, was_out: bool = False) -> None:
        """As in penstock/client/membership.py."""
        self.who.terms.hear(self.who.group, assignment.filter)
        change = self._holdings.change(assignment)
        self.joined = True
        is_lost = was_out or not self.who.hand_over.lets_go
        if change.going and not is_lost:
            for position in change.going:
                position.leaving = True
            self._change, self._change_came = change, self._clock.monotonic()
            self._go_on(change)
        else:
            self._carry_out(change, is_lost=is_lost)

    def _carry_out(self, change: Change[Position], *, is_lost: bool = False) -> None:
        self._change = None
        hand_over = self.who.hand_over
        new = [self._position(one) for one in self._holdings.carry_out(change, is_lost=is_lost)]
        self._tell_lost()
        try:
            self._begin_unset([position for position in new if position.offset == UNSET])
        except (Fenced, QueueNotFound):
            return  # there is a newer generation already, and the next watch brings it
        for position in new:
            self.held[position.queue.name] = position
        self._call(hand_over.on_assigned, tuple(sorted(position.queue for position in new)))
        for position in new:
            if position.live:
                self._pulls.add(position, self.link)

    # -- handing queues over

    def _go_on(self, change: Change[Position]) -> None:
        """Carries an assignment out when no handler is at work in the queues that go, or has been for too long."""
        if self._is_calling:
            return
        queues = tuple(sorted(position.queue for position in change.going if position.live))
        if not any([position.hands for position in change.going]):
            self._let_go(change.going)
        elif self.who.hand_over.ordered or self._clock.monotonic() < self._change_came + self.who.session_s:
            return
        else:
            _log.warning("the program works on %s for too long: others have it now", ", ".join(map(str, queues)))
            self._call(self.who.hand_over.on_lost, queues)
        if self._change is change:  # else a refused commit has had us join again
            self._carry_out(change)

    def _let_go(self, going: Sequence[Position]) -> None:
        """Commits the messages that handlers have finished, and has the program commit."""
        done = {one.queue.name: one.passed for one in going if one.unfinished is not None and one.live}
        with contextlib.suppress(PenstockError):  # then it comes again, at the new holder
            self.commit(done, forward=True)
        self._call(self.who.hand_over.on_revoked, tuple(sorted(one.queue for one in going if one.live)))

    def _tell_lost(self) -> None:
        gone = self._holdings.take_gone()
        if gone:
            self._call(self.who.hand_over.on_lost, gone)

    def _call(self, callback: Callback | None, queues: Queues) -> None:
        """Logs what a callback raises: the hand-over continues."""
        if callback is None or not queues:
            return
        self._is_calling = True
        try:
            callback(queues)
        except Exception:
            _log.exception("%s failed", getattr(callback, "__name__", callback))
        finally:
            self._is_calling = False

    def _position(self, one: QueueOffset) -> Position:
        position = Position(queue_named(self.broker, one.queue), committed=one.offset, committing=one.offset)
        self._holdings.begin(position, self._lease if self.who.hand_over.ordered else None)
        return position

    def _begin_unset(self, new: list[Position]) -> None:
        """As in penstock/client/membership.py: a beginning at the end is committed at once, so that no member begins
        later."""
        if not new:
            return
        begun: dict[Position, int] = {}
        names = [position.queue.name for position in new]
        for position, bounds in zip(new, bounds_of(self.link, names), strict=True):
            position.begin(offset_of(self.link, bounds, self.who.subscription.start_of(position.queue.topic)))
            if self.who.subscription.start == "latest" or self.who.hand_over.ordered:
                begun[position] = position.offset
        if begun:
            self._commit(begun)

    # -- commits

    def commit(self, offsets: Mapping[str, int] | None = None, *, forward: bool = False) -> None:
        """As penstock/client/membership.py. Raises ``PenstockError``."""
        chosen = None if offsets is None else self._holdings.chosen(self.who.group, offsets, forward=forward)
        for _ in range(FENCED_MAX):
            wanted = self._holdings.wanted() if chosen is None else chosen
            if not wanted:
                return
            self._holdings.check_kept(self.who.group, wanted)
            try:
                self._commit(wanted)
            except (Fenced, GroupNotFound):
                self._learn()
            else:
                return
        raise Fenced(f"{self.broker} refuses the offsets of group {self.who.group}")

    def _commit(self, wanted: dict[Position, int]) -> None:
        who, generation = self.who, self._holdings.generation
        offsets = self._holdings.storing(wanted)
        try:
            self.link.call(CommitOffsets(who.group, who.member, generation, offsets))
        except BaseException:
            self._holdings.not_stored(wanted)
            raise
        self._holdings.stored(wanted)

    def send_back(
        self, message: ReceivedMessage, after_s: float | None, reason: str, *, is_last: bool = False
    ) -> SentBack:
        """As penstock/client/membership.py. Raises ``PenstockError``."""
        who, held = self.who, self.held_of(message.queue)
        for _ in range(FENCED_MAX):
            self._holdings.check_kept(who.group, [held])
            named = who.group, who.member, self._holdings.generation
            try:
                return self.link.ask(who.attempts.send_back(named, message, after_s, reason, is_last=is_last), SentBack)
            except (Fenced, GroupNotFound):
                self._learn()
        raise Fenced(f"{self.broker} takes no message back from group {who.group}")

    def note_attempts(self, messages: Sequence[ReceivedMessage]) -> None:
        """As in penstock/client/membership.py."""
        self.link.call(self.who.note(messages, self._holdings.generation), NOTE_S)

    def _learn(self) -> None:
        """After a refused commit: fetches the assignment, and joins again if the broker does not know us. It does not
        carry out an assignment that waits for the program. Raises ``PenstockError``."""
        sent = self._lease.now()
        try:
            watch = WatchGroup(self.who.group, self.who.member, self._holdings.carried_out, 0.0)
            assignment = self.link.ask(watch, Assignment)
        except (Fenced, GroupNotFound):
            self.joined, self._is_out = False, True
            if self._is_calling:
                self._drop_all()
            else:
                self.join()
            return
        self._lease.renew(sent)
        is_news = assignment.generation > self._holdings.generation
        if is_news and not self.who.hand_over.lets_go and not self._is_calling:
            self._apply(assignment)
