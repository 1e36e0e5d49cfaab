"""One blocking consumer's membership of its group at one broker.

Its watch stays open at the broker between calls; ``tend`` looks after it. What an assignment means, and what is lost by
it, is decided in penstock/client/holdings.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from penstock.blocking.exchange import Exchange
from penstock.blocking.link import BlockingLink
from penstock.blocking.pulls import Pulls, bounds_of, offset_of
from penstock.client.holdings import FENCED_MAX, LEAVE_S, Holdings, Membership
from penstock.client.positions import UNSET, Position
from penstock.client.retry import BackOff
from penstock.errors import Fenced, GroupNotFound, PenstockError, QueueNotFound
from penstock.protocol.received import ReceivedMessage, queue_named
from penstock.protocol.requests.groups import Assignment, CommitOffsets, JoinGroup, LeaveGroup, QueueOffset, WatchGroup
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.retries import SentBack
from penstock.world import Clock, Rng


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
        self._failures = 0
        self._not_before = 0.0

    @property
    def held(self) -> dict[str, Position]:
        return self._holdings.held

    def take_lost(self) -> list[str]:
        """Queues taken away with messages handed out and not committed, since the last call."""
        return self._holdings.take_lost()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Changes what is subscribed; takes effect with the next ``tend``."""
        if self._topics != tuple(topics):
            self._topics, self.joined = tuple(topics), False

    def join(self) -> None:
        """Enters the group, or enters it again. Raises ``PenstockError``."""
        who = self.who
        self._watch = 0
        join = JoinGroup(who.group, who.member, self._topics, who.session_s)
        self._apply(self.link.ask(who.terms.join(self.broker, join, is_first=self._is_new), Assignment))
        self._is_new = False

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
            self._failures = 0
        except PenstockError as error:
            self._trouble(error)
        if self.joined and not self._watch:
            self._open_watch(now)

    def leave(self) -> None:
        """Tells the broker, so that others get the queues at once. Never fails."""
        self.joined, self._watch = False, 0
        self._holdings.drop_all()
        with contextlib.suppress(PenstockError):
            self.link.call(LeaveGroup(self.who.group, self.who.member), LEAVE_S)

    # -- assignments

    def _open_watch(self, now: float) -> None:
        self._watches += 1
        number = self._watch = self._watches
        self._watch_late = now + self.who.watch_s + self.link.timeout_s
        watch = WatchGroup(self.who.group, self.who.member, self._holdings.generation, self.who.watch_s)
        self._exchange.submit(self.link, [(watch, lambda result: self._watched(number, result))])

    def _watched(self, number: int, result: Result) -> None:
        if number != self._watch:
            return
        self._watch = 0
        try:
            if isinstance(result, PenstockError):
                raise result
            assert isinstance(result, Assignment)
            if result.generation > self._holdings.generation:
                self._apply(result)
        except PenstockError as error:
            self._trouble(error)

    def _trouble(self, error: PenstockError) -> None:
        self.joined = False
        if isinstance(error, Fenced | GroupNotFound):
            self._holdings.drop_all()  # the broker dropped us: others may hold the queues by now
        elif not error.retryable:
            raise error
        self._failures += 1
        self._not_before = self._clock.monotonic() + self._back_off.wait_s(self._failures, self._rng)

    def _apply(self, assignment: Assignment) -> None:
        self.who.terms.hear(self.who.group, assignment.filter)
        new = [self._position(one) for one in self._holdings.apply(assignment)]
        self.joined = True
        try:
            self._begin_unset([position for position in new if position.offset == UNSET])
        except (Fenced, QueueNotFound):
            return  # there is a newer generation already, and the next watch brings it
        for position in new:
            self.held[position.queue.name] = position
            self._pulls.add(position, self.link)

    def _position(self, one: QueueOffset) -> Position:
        position = Position(queue_named(self.broker, one.queue), committed=one.offset, committing=one.offset)
        position.begin(one.offset)
        position.filter, position.log_id = self._holdings.filter, self._holdings.log_id
        return position

    def _begin_unset(self, new: list[Position]) -> None:
        """As in penstock/client/membership.py: beginning at the end is committed at once, so nobody begins later."""
        if not new:
            return
        begun: dict[Position, int] = {}
        names = [position.queue.name for position in new]
        for position, bounds in zip(new, bounds_of(self.link, names), strict=True):
            position.begin(offset_of(self.link, bounds, self.who.subscription.start_of(position.queue.topic)))
            if self.who.subscription.start == "latest":
                begun[position] = position.offset
        if begun:
            self._commit(begun)

    # -- commits

    def commit(self, offsets: Mapping[str, int] | None = None, *, forward: bool = False) -> None:
        """As penstock/client/membership.py. Raises ``PenstockError``."""
        for _ in range(FENCED_MAX):
            if offsets is None:
                wanted = self._holdings.wanted()
            else:
                wanted = self._holdings.chosen(self.who.group, offsets, forward=forward)
            if not wanted:
                return
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

    def send_back(self, message: ReceivedMessage, after_s: float | None, reason: str) -> SentBack:
        """As penstock/client/membership.py. Raises ``PenstockError``."""
        who = self.who
        for _ in range(FENCED_MAX):
            self._holdings.check_held(who.group, [message.queue.name])
            named = who.group, who.member, self._holdings.generation
            try:
                return self.link.ask(who.attempts.send_back(named, message, after_s, reason), SentBack)
            except (Fenced, GroupNotFound):
                self._learn()
        raise Fenced(f"{self.broker} takes no message back from group {who.group}")

    def _learn(self) -> None:
        """After a refused commit: asks what is held now."""
        try:
            watch = WatchGroup(self.who.group, self.who.member, self._holdings.generation, 0.0)
            assignment = self.link.ask(watch, Assignment)
        except (Fenced, GroupNotFound):
            self._holdings.drop_all()
            self.joined = False
            return
        if assignment.generation > self._holdings.generation:
            self._apply(assignment)
