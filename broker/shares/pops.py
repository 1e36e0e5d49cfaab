"""Requests about popped queues: messages that are leased one by one to any taker, without members and assignments.

What is settled is in the log, as of a shared subscription, under ``$pop/GROUP/QUEUE``; leases are not
(``pop_leases.py``). So every taker of a group has a share of every queue, and none waits for a rebalance. A message
whose lease is over goes out again, and becomes a dead letter in the append that settles it when it was tried often
enough. A taker may acknowledge a message also after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.groups.members import Groups
from broker.groups.retries import ATTEMPTS_MAX, RetryRequests
from broker.kernel.checks import NAME_BYTES_MAX, check_text
from broker.kernel.fold import fact_record
from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, Now, Outcome, Parked
from broker.kernel.theme import Wakers
from broker.messages.choosing import Choosing, offset_ranges
from broker.messages.dead_letters import attempts_of
from broker.messages.filtering import Selection, allowed_selector
from broker.messages.trace import Trace
from broker.settings import BrokerSettings
from broker.shares import fold as shares
from broker.shares.fold import END, Settled, Shares
from broker.shares.pop_leases import Owed, PopLeases
from broker.state import BrokerState
from broker.store.destinations import Incoming
from broker.store.message_store import MessageStore
from broker.store.queue_index import LIGHT
from broker.topics.requests import TopicRequests
from penstock.errors import Busy, Fenced, InvalidRequest, PenstockError, QueueNotFound
from penstock.protocol.message import ENTRY, FRAME_HEAD_BYTES, tag_hash
from penstock.protocol.requests.messages import Pulled
from penstock.protocol.requests.pops import AckPopped, ExtendPopped, LeavePopped, Pop, Popped, Range, SendPoppedBack
from penstock.protocol.requests.request import Done, Result
from penstock.protocol.runs import checksum_of
from topicmap.queues import RETRY_PREFIX, pop_share

INVISIBLE_S_MAX: Final = 43_200.0
"""Half a day, as RocketMQ's proxy has it."""
COUNT_MAX: Final = 4_096
WAIT_S_MAX: Final = 60.0
RANGES_MAX: Final = 4_096
WAIT_BETWEEN_S: Final = 5.0
"""A taker whose pop was answered asks again within this, or it is taken to have gone."""
LATE: Final = "it was not acknowledged in time"
_ALL_TAGS: Final[frozenset[int]] = frozenset()


class Wanted(NamedTuple):
    """The messages that a group pops: those with one of these tags, if there are any, that the filter matches."""

    tags: tuple[str, ...] = ()
    filter: str = ""

    def __str__(self) -> str:
        words = [f"the tags {', '.join(self.tags)}"] if self.tags else []
        words += [f"the filter {self.filter!r}"] if self.filter else []
        return " and ".join(words) or "no filter"


_EVERYTHING: Final = Wanted()
_NOTHING: Final = Popped(0, 0, 0, 0, b"")


class PopRequests:
    """The pops of groups from the queues of one broker."""

    def __init__(
        self,
        state: BrokerState,
        store: MessageStore,
        topics: TopicRequests,
        groups: Groups,
        retries: RetryRequests,
        settings: BrokerSettings,
        wakers: Wakers,
        trace: Trace,
    ) -> None:
        self._trace = trace
        self._choosing = Choosing(store)
        self._wanted: dict[str, Wanted] = {}  # by group, unless it wants everything: what its last takers asked for
        self._begun: dict[str, int] = {}  # by share: end of the record that begins it, until that is durable
        self._shares: Shares = state.shares
        self._offsets = state.offsets
        self._store = store
        self._topics = topics
        self._groups = groups
        self._retries = retries
        self._settings = settings
        self._leases: dict[str, PopLeases] = {}
        self._gone: dict[tuple[str, str], float] = {}  # takers that have left, until nothing of them is parked
        self._asking: dict[str, dict[str, float]] = {}  # by group: takers that wait for messages, and until when
        self._wakers = wakers
        self._now = 0.0
        self._now_ms = 0

    @handles(Pop)
    def pop(self, request: Pop, now: float, now_ms: int) -> Outcome:
        """Leases messages; parked while there is none."""
        self._check(request)
        self._now, self._now_ms = now, now_ms
        popped, wait_s = self._take(request), min(request.wait_s, WAIT_S_MAX)
        if wait_s:
            self._asking.setdefault(request.group, {})[request.taker] = now + wait_s + WAIT_BETWEEN_S
        if popped is not None or not wait_s:
            return self._when_begun(request, popped or _NOTHING)

        def again(last: bool) -> Result | None:
            if (request.group, request.taker) in self._gone:
                return _NOTHING
            try:
                return self._take(request) or (_NOTHING if last else None)
            except PenstockError as error:
                return error.as_result()

        wakers = (request.queue, pop_share(request.group, request.queue))
        return Parked(wakers, now + wait_s, again)

    def _when_begun(self, request: Pop, popped: Popped) -> Outcome:
        """Messages go out when the share is durable: else a taker might acknowledge a message of a share that a power
        loss ends."""
        share = pop_share(request.group, request.queue)
        begun = self._begun.get(share, 0)
        if begun > self._store.committed:
            return AfterQuorum(popped, begun)
        self._begun.pop(share, None)
        return Now(popped)

    @handles(AckPopped)
    def acknowledge(self, request: AckPopped, now: float, now_ms: int) -> Outcome:
        """Messages are settled; what of them is settled already stays so."""
        share, leases, settled = self._of(request.group, request.queue)
        ranges = _in_order(request.ranges, self._store.bounds(request.queue).end)
        fresh = [one for one in ranges if one.end > settled.floor]
        if not fresh:
            return Now(Done())
        if self._trace.is_on:
            for first, end in fresh:
                self._trace.acknowledged(
                    request.queue, first, end, request.group, now_ms, is_known=settled.__contains__
                )
        self._settle(share, leases, fresh, now_ms)
        return AfterQuorum(Done(), self._store.written)

    @handles(ExtendPopped)
    def extend(self, request: ExtendPopped, now: float, now_ms: int) -> Outcome:
        """A taker has its messages longer, or gives them back. Of those that it has no more it hears nothing: they go
        out again, or are settled."""
        if not 0 <= request.invisible_s <= INVISIBLE_S_MAX:
            raise InvalidRequest(f"a message is leased for 0 to {INVISIBLE_S_MAX:.0f} s")
        share, leases, _settled = self._of(request.group, request.queue)
        for first, end in _in_order(request.ranges, leases.next):
            if request.invisible_s:
                leases.extend(request.taker, first, end, now + request.invisible_s)
            elif leases.give_back(request.taker, first, end):
                self._wakers[share] = None
        return Now(Done())

    @handles(LeavePopped)
    def leave(self, request: LeavePopped, now: float, now_ms: int) -> Outcome:
        """All messages of a taker go to others; its parked requests get none any more."""
        self._gone[request.group, request.taker] = now + WAIT_S_MAX
        self._asking.get(request.group, {}).pop(request.taker, None)
        for share, leases in self._leases.items():
            if share.startswith(pop_share(request.group, "")) and leases.give_back(request.taker, 0, END):
                self._wakers[share] = None
        return Now(Done())

    @handles(SendPoppedBack)
    def send_back(self, request: SendPoppedBack, now: float, now_ms: int) -> Outcome:
        """Has a message come again later, or stores it as a dead letter, and settles it with that."""
        share, leases, settled = self._of(request.group, request.queue)
        lease = leases.of(request.offset)
        if request.offset in settled:
            raise Fenced(f"offset {request.offset} of {request.queue} is acknowledged, or given back, already")
        if lease is not None and lease.taker != request.taker:
            raise Fenced(f"{lease.taker} has offset {request.offset} of {request.queue} now")
        answer, record = self._retries.given_back(request, lease.deliveries if lease is not None else 0, now_ms)
        self._settle(share, leases, [Range(request.offset, request.offset + 1)], now_ms, [record])
        return AfterQuorum(answer, self._store.written)

    def takers(self, group: str) -> tuple[str, ...]:
        """Takers of this group that have messages or wait for some."""
        found = set(self._asking.get(group, ()))
        for share in self._shares.popped_by(group):
            if share in self._leases:
                found |= self._leases[share].takers
        return tuple(sorted(found))

    def counts(self, share: str) -> tuple[int, int]:
        """How many messages of what a group pops are with takers, and how many wait to go out again."""
        leases = self._leases.get(share)
        return (leases.leased, leases.owed) if leases is not None else (0, 0)

    def figures(self) -> dict[str, float]:
        """Gauges and counters of popped queues."""
        return {
            "penstock_popped_leased": sum([one.leased for one in self._leases.values()]),
            "penstock_popped_owed": sum([one.owed for one in self._leases.values()]),
            "penstock_popped_redelivered_total": sum([one.redelivered for one in self._leases.values()]),
        }

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """Wakes waiting takers where a lease is over; settles messages that were passed over."""
        self._now, self._now_ms = now, now_ms
        self._gone = {taker: until for taker, until in self._gone.items() if until > now} if self._gone else self._gone
        if self._asking:
            self._asking = {group: left for group, asking in self._asking.items() if (left := _until(asking, now))}
        for share, leases in list(self._leases.items()):
            if leases.deadline is not None and leases.deadline <= now:
                self._expire(share, leases)
            if leases.has_passed and self._shares.get(share) is not None:
                self._settle_passed(share, leases)

    # -- messages

    def _check(self, request: Pop) -> None:
        check_text("a group's name", request.group, NAME_BYTES_MAX)
        check_text("a taker's name", request.taker, NAME_BYTES_MAX)
        if not 0 < request.invisible_s <= INVISIBLE_S_MAX:
            raise InvalidRequest(f"a message is leased for more than 0 and at most {INVISIBLE_S_MAX:.0f} s")
        if request.count_max < 1 or request.bytes_max < 1 or request.wait_s < 0 or request.begin < 0:
            raise InvalidRequest("count_max and bytes_max are at least 1, wait_s and begin at least 0")
        if not 1 <= request.attempts_max <= ATTEMPTS_MAX:
            raise InvalidRequest(f"a message is tried 1 to {ATTEMPTS_MAX} times")
        if request.group in self._groups:
            raise InvalidRequest(
                f"group {request.group} has members, to which its queues belong", hint="pop with a group of its own"
            )
        if request.queue.startswith(LIGHT):
            raise InvalidRequest("queues of topics are popped, not those of filters")
        self._topics.check_readable(request.queue)
        self._check_wanted(request)

    def _check_wanted(self, request: Pop) -> None:
        """Raises ``InvalidRequest`` for tags or a filter unlike those of the group's other takers. A group without
        takers may change both."""
        asked = Wanted(tuple(sorted(set(request.tags))), request.filter)
        known = self._wanted.get(request.group, _EVERYTHING)
        if asked == known:
            return
        if request.filter:
            allowed_selector(self._settings, request.filter, request.queue)
        others = [taker for taker in self.takers(request.group) if taker != request.taker]
        if others:
            raise InvalidRequest(
                f"group {request.group} is popped by {', '.join(others)} with {known}, and {request.taker} has {asked}",
                hint="all takers of a group have the same tags and filter",
            )
        self._begin(request)
        self._wanted.pop(request.group, None)
        if asked != _EVERYTHING:
            self._wanted[request.group] = asked

    def _of(self, group: str, queue: str) -> tuple[str, PopLeases, Settled]:
        """The popped queue of a group. Raises ``QueueNotFound`` if there is none, or the topic is gone."""
        share = pop_share(group, queue)
        settled = self._shares.get(share)
        if settled is None:
            self._leases.pop(share, None)
            raise QueueNotFound(f"group {group} pops nothing of {queue}")
        leases = self._leases.get(share)
        if leases is None:
            leases = self._leases[share] = PopLeases(settled.floor)
        return share, leases, settled

    def _begin(self, request: Pop) -> None:
        """The group pops a queue for the first time: from where it has come as a group with members, else from where
        the taker says."""
        share = pop_share(request.group, request.queue)
        if self._shares.get(share) is not None:
            return
        self._leases.pop(share, None)
        if len(self._shares) >= self._settings.shares_max:
            raise Busy(f"{len(self._shares)} queues are shared or popped: the limit shares_max is reached")
        begin = self._offsets.of(request.group).get(request.queue, request.begin)
        begin = min(begin, self._store.bounds(request.queue).end)
        self._store.append([fact_record(shares.TOPIC, Shares.beginning(share, begin))], self._now_ms)
        self._begun[share] = self._store.written

    def _take(self, request: Pop) -> Popped | None:
        """Messages for a taker; ``None`` if the queue has no more. An answer without messages: the filter left out all
        that were looked at."""
        self._begin(request)
        share, leases, settled = self._of(request.group, request.queue)
        self._expire(share, leases)
        while (owed := leases.first_owed()) is not None:
            popped = self._take_owed(request, share, leases, owed)
            if popped is not None:
                return popped
        bounds = self._store.bounds(request.queue)
        count = min(request.count_max, COUNT_MAX, self._settings.share_unsettled_max - leases.leased)
        first, end = settled.open_from(max(leases.next, bounds.min))
        if first >= bounds.end or count <= 0:
            return None
        if leases.next < bounds.min:
            self._settle(share, leases, [Range(leases.next, bounds.min)], self._now_ms)
        pulled = self._read(request, first, end, count)
        self._give(request, leases, first, pulled, 0)
        return Popped(pulled.count, 0, pulled.next, bounds.end, pulled.body, pulled.checksum)

    def _take_owed(self, request: Pop, share: str, leases: PopLeases, owed: Owed) -> Popped | None:
        """Messages that go out again, unless there are none left of these."""
        bounds = self._store.bounds(request.queue)
        if owed.first < bounds.min:
            self._settle(share, leases, [Range(owed.first, min(owed.end, bounds.min))], self._now_ms)
            return None
        pulled = self._read(request, owed.first, owed.end, min(request.count_max, COUNT_MAX))
        dead = self._tried_out(request, pulled, owed.deliveries) if owed.deliveries else []
        if dead or not pulled.count:
            gone = [Range(offset, offset + 1) for offset, _letter in dead] or [Range(owed.first, pulled.next)]
            self._settle(share, leases, gone, self._now_ms, [letter for _offset, letter in dead])
            return None
        leases.take_owed(owed, pulled.next)
        self._give(request, leases, owed.first, pulled, owed.deliveries)
        return Popped(pulled.count, owed.deliveries, pulled.next, bounds.end, pulled.body, pulled.checksum)

    def _give(self, request: Pop, leases: PopLeases, first: int, pulled: Pulled, deliveries: int) -> None:
        """Leases the messages read from an offset on to the taker; passes over those left out or damaged."""
        deadline, at = self._now + request.invisible_s, first
        for begin, end in offset_ranges(pulled, first):
            if at < begin:
                leases.pass_over(at, begin)
            leases.lease(begin, end, request.taker, deadline, deliveries)
            if self._trace.is_on:
                self._trace.popped(request.queue, begin, end, request.group, request.taker)
            at = end
        if at < pulled.next:
            leases.pass_over(at, pulled.next)

    def _read(self, request: Pop, first: int, end: int, count: int) -> Pulled:
        """Wanted messages from an offset on and before another; ``next`` is at most that one."""
        queue, bytes_max = request.queue, min(request.bytes_max, self._settings.pull_bytes_max)
        count, selector, tags = min(count, end - first), None, _ALL_TAGS
        if not queue.startswith(RETRY_PREFIX):  # retries passed the filter before
            selector = allowed_selector(self._settings, request.filter, queue) if request.filter else None
            tags = frozenset([tag_hash(tag) for tag in request.tags]) if request.tags else _ALL_TAGS
        if selector is None:
            pulled = self._store.read(queue, first, count, bytes_max, tags)
        else:
            pulled = self._choosing.read(queue, first, Selection(selector), count, bytes_max, tags)
        return pulled if pulled.next <= end else _before(pulled, end)

    def _tried_out(self, request: Pop, pulled: Pulled, deliveries: int) -> list[tuple[int, Incoming]]:
        """Offsets and dead letters of those messages that were tried often enough."""
        body, dead = memoryview(pulled.body), list[tuple[int, Incoming]]()
        at = pulled.count * ENTRY.size
        for offset, _position, size, _tag in ENTRY.iter_unpack(body[:at]):
            record = bytes(body[at + FRAME_HEAD_BYTES : at + size])
            at += size
            attempts = attempts_of(record) + deliveries
            if attempts >= request.attempts_max:
                dead.append((offset, self._retries.letter(request, offset, record, LATE, self._now_ms, attempts)))
        return dead

    def _expire(self, share: str, leases: PopLeases) -> None:
        if leases.expire(self._now):
            self._wakers[share] = None

    def _settle_passed(self, share: str, leases: PopLeases) -> None:
        """Settles messages that were passed over, many at a time."""
        passed = [Range(first, end) for first, end in leases.take_passed(RANGES_MAX)]
        try:
            self._settle(share, leases, passed, self._now_ms)
        except PenstockError:  # tried again at the next tick
            for first, end in passed:
                leases.pass_over(first, end)

    def _settle(
        self,
        share: str,
        leases: PopLeases,
        ranges: Sequence[Range],
        now_ms: int,
        before: Sequence[Incoming] = (),
    ) -> None:
        """``before``: what is to be stored before that, so that a crash in between loses nothing."""
        was_full = leases.leased >= self._settings.share_unsettled_max
        facts = self._shares.settling_all(share, ranges, self._store.position_of)
        self._store.append_facts([*before, *facts], now_ms)
        for first, end in ranges:
            leases.settle(first, end)
        leases.next = max(leases.next, self._shares.known(share).floor)
        if was_full:
            self._wakers[share] = None


def _before(pulled: Pulled, end: int) -> Pulled:
    """Only those messages whose offsets are below ``end``."""
    body, frames_at = memoryview(pulled.body), pulled.count * ENTRY.size
    sizes = [size for offset, _, size, _ in ENTRY.iter_unpack(body[:frames_at]) if offset < end]
    kept = bytes(body[: len(sizes) * ENTRY.size]) + bytes(body[frames_at : frames_at + sum(sizes)])
    checksum = checksum_of(kept) if pulled.checksum and sizes else 0
    return Pulled(len(sizes), end, pulled.min, pulled.end, kept, checksum)


def _until(takers: dict[str, float], now: float) -> dict[str, float]:
    """Takers that have not gone."""
    return {taker: until for taker, until in takers.items() if until > now}


def _in_order(ranges: Sequence[Range], end: int) -> list[Range]:
    """Ranges as they may be, in order and none of them beyond an offset. Raises ``InvalidRequest``."""
    if not ranges or len(ranges) > RANGES_MAX:
        raise InvalidRequest(f"1 to {RANGES_MAX} ranges are given at a time")
    if any(not 0 <= first < last <= END for first, last in ranges):
        raise InvalidRequest("a range has at least one offset, and none below 0")
    return [Range(first, min(last, end)) for first, last in sorted(ranges) if first < end]
