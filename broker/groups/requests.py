"""Requests about consumer groups: membership, assignments, offsets, lag."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from broker.groups import fold as offsets
from broker.groups.allocation import Claim, Place
from broker.groups.holders import HOLDS, Holders
from broker.groups.members import Group, Groups, Terms, member_waker
from broker.kernel.checks import NAME_BYTES_MAX, check_text
from broker.kernel.fold import fact_record, in_parts
from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, AfterRound, Now, Outcome, Parked
from broker.kernel.theme import Wakers
from broker.lineage.epoch import Epoch
from broker.messages.trace import Trace
from broker.settings import BrokerSettings
from broker.shares import fold as shares
from broker.state import BrokerState
from broker.store.destinations import Incoming
from broker.store.message_store import MessageStore
from broker.topics.requests import TopicRequests
from penstock.errors import Busy, Fenced, GroupNotFound, InvalidRequest, OffsetOutOfRange, PenstockError, QueueNotFound
from penstock.protocol.requests.groups import (
    PAGE,
    REMOTING,
    STRATEGIES,
    Assignment,
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    GroupDetail,
    GroupLag,
    GroupOffsets,
    GroupRow,
    GroupsPage,
    HeldOffsets,
    HoldOffsets,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    MemberInfo,
    NoteAttempts,
    Progress,
    QueueOffset,
    Tried,
    WatchGroup,
)
from penstock.protocol.requests.request import Done, Result
from penstock.protocol.selectors.compiling import selector_of
from penstock.service.metrics import with_label
from topicmap.queues import retry_topic, share_queue

LABELLED_MAX: Final = 200
"""Maximum number of groups that have a figure of their own."""
WAIT_S_MAX: Final = 60.0
SESSION_S_MAX: Final = 3600.0
ATTEMPT_ROWS_MAX: Final = 1_001
UNCOMMITTED: Final = -1


class GroupRequests:
    """Consumer groups of one broker."""

    def __init__(
        self,
        state: BrokerState,
        store: MessageStore,
        topics: TopicRequests,
        epoch: Epoch,
        settings: BrokerSettings,
        now: float,
        wakers: Wakers,
        trace: Trace,
        takers: Callable[[str], tuple[str, ...]],
    ) -> None:
        """``takers``: gives the takers that pop as a group."""
        self._takers = takers
        self._trace = trace
        self._offsets = state.offsets
        self._shares = state.shares
        self._identity = state.identity
        self._groups_max = settings.groups_max
        self._store = store
        self._topics = topics
        self._count_queues = topics.queue_count
        place = Place(settings.name, settings.room)
        first, was_read = epoch.first_generation, self._offsets.__contains__
        self.groups = Groups(topics.queue_count, first, place, wakers, was_read, now)
        self._epoch = epoch
        self._holders = Holders(state.offsets.held(), now)

    def topic_changed(self, topic: str) -> None:
        """A topic was created or deleted: its queues are given to members, or taken from them."""
        self.groups.queues_changed(topic)
        if not self._count_queues(topic):
            self._holders.forget(topic)

    @handles(JoinGroup)
    def join(self, request: JoinGroup, now: float, now_ms: int) -> Outcome:
        """Enters a group."""
        _check_names(request.group, request.member)
        self._epoch.check_recorded()
        if not 1 <= request.session_s <= SESSION_S_MAX or not request.topics:
            raise InvalidRequest(f"a member has topics, and a session of 1 to {SESSION_S_MAX:.0f} s")
        if request.group not in self.groups and (takers := self._takers(request.group)):
            raise InvalidRequest(
                f"group {request.group} is popped by {_some(takers)}, so {request.member} cannot be its member",
                hint="join a group of its own, or stop the consumers that pop",
            )
        self._check_room(request.group)
        if request.strategy not in (*STRATEGIES, REMOTING):
            raise InvalidRequest(f"a strategy is one of {', '.join(STRATEGIES)}, not {request.strategy!r}")
        if len(request.room) > NAME_BYTES_MAX:
            raise InvalidRequest(f"a room has at most {NAME_BYTES_MAX} characters")
        if request.filter:
            selector_of(request.filter)
        if len(request.attempts) > ATTEMPT_ROWS_MAX:
            raise InvalidRequest(f"a group has at most {ATTEMPT_ROWS_MAX - 1} waits between attempts")
        if request.group not in self.groups:
            self._go_on_from_pops(request.group, now_ms)
        claim = Claim(frozenset(request.topics), request.room, frozenset(request.queues))
        group = self.groups.join(
            request.group,
            request.member,
            claim,
            request.session_s,
            now,
            Terms(request.filter, request.strategy, request.session_s if request.ordered else 0.0, request.attempts),
            force=request.force,
            lets_go=request.lets_go,
            holding=request.holding,
        )
        return AfterRound(self._assignment(request.group, request.member, group))

    def _check_room(self, name: str) -> None:
        """Raises ``Busy`` where a group would be one more than there may be."""
        if not self._has_room(name):
            raise Busy(f"there are {self._groups_max} groups: the limit is reached", hint="raise groups_max")

    def _has_room(self, name: str) -> bool:
        if name in self.groups or name in self._offsets or name in self._holders:
            return True
        return self.count < self._groups_max

    @property
    def count(self) -> int:
        """How many groups there are, with members, committed offsets or holders."""
        return max(len(self.groups.names), len(self._offsets), len(self._holders))

    @handles(WatchGroup)
    def watch(self, request: WatchGroup, now: float, now_ms: int) -> Outcome:
        """A sign of life; answered when the member's assignment changes, or after half a session at the latest: who
        waits longer than a session would be taken for dead."""
        group = self.groups.touch(request.group, request.member, request.generation, now)
        if request.wait_s <= 0 or self._is_news(request, group):
            return AfterRound(self._assignment(request.group, request.member, group))

        def again(last: bool) -> Result | None:
            try:
                current = self.groups.of_member(request.group, request.member)
            except PenstockError as error:
                return error.as_result()
            if not (last or self._is_news(request, current)):
                return None
            return self._assignment(request.group, request.member, current)

        waker, session_s = member_waker(request.group, request.member), group.members[request.member].session_s
        return Parked((waker,), now + min(request.wait_s, WAIT_S_MAX, session_s / 2), again)

    def _is_news(self, request: WatchGroup, group: Group) -> bool:
        """Whether a member knows another assignment than its own; a generation of the future is one of another life."""
        return not group.members[request.member].changed <= request.generation <= group.generation

    def _assignment(self, name: str, member: str, group: Group) -> Assignment:
        committed, known = self._offsets.of(name), group.members[member]
        rows = tuple(QueueOffset(one, committed.get(one, UNCOMMITTED)) for one in known.queues)
        tried: tuple[Tried, ...] = ()
        if group.terms.ordered_s:
            tried = tuple([one for one in self._offsets.tried(name) if one.queue in known.held])
        return Assignment(group.generation, rows, self._identity.log_id, group.terms.filter, known.pending, tried)

    @handles(LeaveGroup)
    def leave(self, request: LeaveGroup, now: float, now_ms: int) -> Outcome:
        """Leaves a group."""
        self.groups.leave(request.group, request.member)
        return Now(Done())

    @handles(CommitOffsets)
    def commit(self, request: CommitOffsets, now: float, now_ms: int) -> Outcome:
        """Stores positions, durably, if the caller holds the queues: also further back, for it does so on purpose. None
        is beyond its queue's end."""
        _check_names(request.group)
        queues = [one.queue for one in request.offsets]
        self.groups.check_commit(request.group, request.member, request.generation, queues)
        if not request.member:
            self._check_not_popped(request.group)
        self._check_offsets(request.offsets)
        if not request.offsets:
            return Now(Done())
        self._check_room(request.group)
        before = self._offsets.of(request.group) if request.member else self._positions(request.group)
        self._holders.set_back(
            request.group, [queue for queue, offset in request.offsets if offset < before.get(queue, UNCOMMITTED)]
        )
        if self._trace.is_on:
            rows = [(one, before.get(one.queue, UNCOMMITTED)) for one in request.offsets]
            self._trace.committed(request.group, request.member, rows, now_ms)
        self._store_offsets(request.group, request.offsets, None, now_ms)
        if not request.member:
            self._end_pops(request.group, set(queues), now_ms)
        return AfterQuorum(Done(), self._store.written)

    @handles(NoteAttempts)
    def note_attempts(self, request: NoteAttempts, now: float, now_ms: int) -> Outcome:
        """Stores how often messages were tried that the group has not passed, if the caller holds their queues."""
        if len(request.tried) > ATTEMPT_ROWS_MAX:
            raise InvalidRequest(f"at most {ATTEMPT_ROWS_MAX} messages have their attempts noted at a time")
        queues = list(dict.fromkeys([one.queue for one in request.tried]))
        self.groups.check_commit(request.group, request.member, request.generation, queues)
        committed = self._offsets.of(request.group)
        self._check_offsets([QueueOffset(one.queue, one.offset) for one in request.tried])
        rows = [one for one in request.tried if 0 <= committed.get(one.queue, UNCOMMITTED) <= one.offset]
        facts: list[Incoming] = []
        for part in in_parts(rows, _tried_bytes, self._store.fact_bytes_max - len(request.group.encode())):
            places = [QueueOffset(queue, committed[queue]) for queue in dict.fromkeys([one.queue for one in part])]
            facts.append(fact_record(offsets.TOPIC, self._offsets.fact(request.group, places, None, part)))
        if not facts:
            return Now(Done())
        self._store.append_facts(facts, now_ms)
        return AfterQuorum(Done(), self._store.written)

    def _check_not_popped(self, group: str) -> None:
        if takers := self._takers(group):
            raise Fenced(f"group {group} is popped by {_some(takers)}", hint="stop its consumers first")

    def _end_pops(self, group: str, queues: Container[str], now_ms: int) -> None:
        """The next pop of these queues begins where the group's offsets are."""
        moved = [share for share in self._shares.popped_by(group) if share_queue(share) in queues]
        facts = [fact_record(shares.TOPIC, self._shares.forgetting(share)) for share in moved]
        if facts:
            self._store.append_facts(facts, now_ms)

    def _go_on_from_pops(self, group: str, now_ms: int) -> None:
        """Hands a popped group's position to its first members: they begin at the first message that is not
        acknowledged. Later pops begin where the members were."""
        popped = {share_queue(share) for share in self._shares.popped_by(group)}
        if popped:
            rows = [QueueOffset(queue, offset) for queue, offset in self._positions(group).items() if queue in popped]
            self._store_offsets(group, rows, None, now_ms)
            self._end_pops(group, popped, now_ms)

    def _positions(self, group: str) -> dict[str, int]:
        """A group's position in each queue: its committed offset, or, while it has no members, the first popped message
        that is not acknowledged if that is further on."""
        found = dict(self._offsets.of(group))
        for share in self._shares.popped_by(group) if group not in self.groups else ():
            settled, queue = self._shares.get(share), share_queue(share)
            if settled is not None:
                found[queue] = max(found.get(queue, 0), settled.floor)
        return found

    @handles(DeleteGroup)
    def delete(self, request: DeleteGroup, now: float, now_ms: int) -> Outcome:
        """Forgets a group, with its retries and what it pops."""
        check_text("a group's name", request.group, NAME_BYTES_MAX)
        self.groups.check_commit(request.group, "", 0, ())
        self._check_not_popped(request.group)
        if self._holders.names(request.group):
            raise Fenced(f"gateways hold the position {request.group}", hint="end its subscriptions first")
        retries = retry_topic(request.group)
        pops = self._shares.popped_by(request.group)
        if request.group not in self._offsets and not self._count_queues(retries) and not pops:
            raise GroupNotFound(f"there is no group {request.group}")
        if self._count_queues(retries):
            self._topics.remove(retries, now_ms)
        facts = [fact_record(shares.TOPIC, self._shares.forgetting(share)) for share in pops]
        facts.append(fact_record(offsets.TOPIC, self._offsets.fact(request.group, ())))
        self._store.append_facts(facts, now_ms)
        return AfterQuorum(Done(), self._store.written)

    def _check_offsets(self, offsets: Iterable[QueueOffset]) -> None:
        for queue, offset in offsets:
            bounds = self._store.bounds(queue)
            if not 0 <= offset <= bounds.end:
                raise OffsetOutOfRange(f"{queue} ends at {bounds.end}; {offset} cannot be committed")

    def _possible(self, rows: Iterable[Progress]) -> Iterator[Progress]:
        """A reader beyond a queue's end, after a crash at level ``cache``, keeps its position. A queue whose topic was
        deleted has no position."""
        for queue, offset, set_backs in rows:
            if offset < HOLDS:
                raise OffsetOutOfRange(f"{queue}: {offset} is no offset")
            with contextlib.suppress(QueueNotFound):
                yield Progress(queue, HOLDS if offset > self._store.bounds(queue).end else offset, set_backs)

    @handles(HoldOffsets)
    def hold(self, request: HoldOffsets, now: float, now_ms: int) -> Outcome:
        """Takes in how far a gateway's subscriptions have come and moves the position, durably, as far as all that hold
        it have. While the group has members it is theirs: the wish is kept until they are gone. Where there is no
        room for another group, the last word of a holder that never had any means nothing."""
        _check_names(request.group, request.holder)
        if not 0 <= request.lease_s <= SESSION_S_MAX:
            raise InvalidRequest(f"a position is held for 0 to {SESSION_S_MAX:.0f} s")
        self._identity.check(request.log_id, f"how far {request.holder} has come in {request.group}")
        group, holders = request.group, self._holders
        progress = list(self._possible(request.progress))
        moves = [row for row in progress if row.offset != HOLDS]
        if moves and request.lease_s:
            self._check_room(group)
        if self._has_room(group):  # else there is no position yet to move
            set_backs = self._offsets.set_backs(group)
            holders.report(group, request.holder, request.lease_s, progress, set_backs, now)
        if moves and group in self.groups:
            if not request.lease_s:
                holders.leave(group, request.holder)
            raise Fenced(f"group {group} has members; its offsets are theirs", hint="stop its consumers first")
        before = self._store.written
        ahead = {} if group in self.groups else holders.ahead(group, self._offsets.of(group))
        if not request.lease_s:
            holders.leave(group, request.holder)
        self._note_holders(group, ahead, now_ms)
        committed, set_backs = self._offsets.of(group), self._offsets.set_backs(group)
        queues = [row.queue for row in request.progress]
        rows = [Progress(queue, committed.get(queue, UNCOMMITTED), set_backs.get(queue, 0)) for queue in queues]
        reply = HeldOffsets(tuple(rows), self._identity.log_id)
        return AfterRound(reply) if self._store.written == before else AfterQuorum(reply, self._store.written)

    def _note_holders(self, group: str, ahead: Mapping[str, int], now_ms: int) -> None:
        """Stores where a position moves and who holds it, if either is new. Of a group without a position nothing is
        stored: its record would say that it is given up."""
        names, committed = self._holders.names(group), self._offsets.of(group)
        rows = [QueueOffset(queue, offset) for queue, offset in ahead.items()]
        if not rows and names != self._offsets.holders(group):
            rows = [QueueOffset(queue, offset) for queue, offset in committed.items()][:1]
        if rows:
            self._store_offsets(group, rows, names, now_ms)

    def _store_offsets(
        self, group: str, rows: Sequence[QueueOffset], holders: tuple[str, ...] | None, now_ms: int
    ) -> None:
        """Many rows take several records, and where segments are small several appends."""
        beside = len(group.encode()) + sum([len(name.encode()) + 5 for name in holders or ()])
        parts = in_parts(rows, _packed_bytes, self._store.fact_bytes_max - beside)
        facts = [fact_record(offsets.TOPIC, self._offsets.fact(group, part, holders)) for part in parts]
        self._store.append_facts(facts, now_ms)

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """Drops members and holders that have been silent for too long."""
        self.groups.expire(now)
        for group in self._holders.expire(now):
            ahead = {} if group in self.groups else self._holders.ahead(group, self._offsets.of(group))
            self._note_holders(group, ahead, now_ms)

    @handles(FetchOffsets)
    def fetch(self, request: FetchOffsets, now: float, now_ms: int) -> Outcome:
        """Committed positions."""
        committed = self._positions(request.group)
        rows = tuple(QueueOffset(queue, committed.get(queue, UNCOMMITTED)) for queue in request.queues)
        return AfterRound(GroupOffsets(rows))

    @property
    def _names(self) -> set[str]:
        """All groups with members or offsets, and those that pop."""
        return {*self.groups.names, *self._offsets.groups, *self._shares.popping}

    @handles(ListGroups)
    def list_all(self, request: ListGroups, now: float, now_ms: int) -> Outcome:
        """A page of the groups with members or offsets, and of those that pop."""
        later = [name for name in self._names if name > request.after and request.contains in name]
        page = heapq.nsmallest(max(1, min(request.count_max, PAGE)), later)
        return Now(GroupsPage(tuple(map(self._row, page)), page[-1] if len(page) < len(later) else ""))

    def _row(self, group: str) -> GroupRow:
        members = self.groups.members(group)[1] if group in self.groups else ()
        lags = list(self._lags(self._read_by(group, members)))
        passed = [max(one.offset, 0) for one in lags]
        lag = sum([one.end for one in lags]) - sum(passed)
        return GroupRow(group, len(members), len(lags), sum(passed), lag)

    def _read_by(self, group: str, members: Sequence[MemberInfo]) -> dict[str, int]:
        """A group's position in each queue that it has read or will read."""
        read = self._positions(group)
        for member in members:
            for queue in member.queues:
                read.setdefault(queue, UNCOMMITTED)
        return read

    def figures(self) -> dict[str, float]:
        """The lag of each of the first groups by name, and how many have no figure."""
        names = self._names
        shown = heapq.nsmallest(LABELLED_MAX, names)
        found: dict[str, float] = {with_label("penstock_unlabelled", "kind", "groups"): len(names) - len(shown)}
        for one in shown:
            found[with_label("rocketmq_consumer_lag_messages", "consumer_group", one)] = self._row(one).lag
        return found

    @handles(DescribeGroup)
    def describe(self, request: DescribeGroup, now: float, now_ms: int) -> Outcome:
        """Members and lag."""
        try:
            generation, members = self.groups.members(request.group)
        except GroupNotFound:
            if not self._positions(request.group):
                raise GroupNotFound(f"there is no group {request.group}") from None
            generation, members = 0, ()
        terms = self.groups.terms_of(request.group) or Terms("", "")
        lags, holders = tuple(self._lags(self._read_by(request.group, members))), self._holders.names(request.group)
        shown = terms.filter, terms.strategy, terms.ordered_s > 0, self._takers(request.group)
        return Now(GroupDetail(request.group, generation, members, lags, holders, *shown))

    def _lags(self, committed: Mapping[str, int]) -> Iterator[GroupLag]:
        for queue, offset in sorted(committed.items()):
            with contextlib.suppress(QueueNotFound):  # a light queue that was closed since
                yield GroupLag(queue, offset, self._store.bounds(queue).end)


def _packed_bytes(row: QueueOffset) -> int:
    """Upper bound of the bytes that a row takes in a fact."""
    return len(row.queue.encode()) + 15


def _tried_bytes(row: Tried) -> int:
    """Bytes of a row of attempts, with its queue's offset."""
    return 2 * len(row.queue.encode()) + 40


def _some(takers: Sequence[str]) -> str:
    """Names of takers, for an error."""
    return takers[0] if len(takers) == 1 else f"{takers[0]} and {len(takers) - 1} more"


def _check_names(*names: str) -> None:
    for name in names:
        if not 0 < len(name.encode("utf-8", "replace")) <= NAME_BYTES_MAX:
            raise InvalidRequest(f"group and member names have 1 to {NAME_BYTES_MAX} bytes")
