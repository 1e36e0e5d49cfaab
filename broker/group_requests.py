"""Requests about consumer groups: membership, assignments, offsets, lag."""

from __future__ import annotations

from typing import Final

from broker.folds import offsets
from broker.folds.state import BrokerState, fact_record
from broker.groups import Group, Groups
from broker.outcomes import AfterSync, Now, Outcome, Parked
from broker.store.message_store import MessageStore
from broker.topic_requests import TopicRequests
from penstock.errors import GroupNotFound, InvalidRequest, OffsetOutOfRange, PenstockError
from penstock.requests import (
    Assignment,
    CommitOffsets,
    DescribeGroup,
    Done,
    FetchOffsets,
    GroupDetail,
    GroupLag,
    GroupNames,
    GroupOffsets,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    QueueOffset,
    Result,
    WatchGroup,
)

WAIT_S_MAX: Final = 60.0
SESSION_S_MAX: Final = 3600.0
NAME_BYTES_MAX: Final = 255
UNCOMMITTED: Final = -1


def group_waker(group: str) -> str:
    """What stirs when a group begins a new generation; no queue has such a name."""
    return f"group {group}"


class GroupRequests:
    """Consumer groups of one broker."""

    def __init__(self, state: BrokerState, store: MessageStore, topics: TopicRequests) -> None:
        self._offsets = state.offsets
        self._store = store
        self._topics = topics
        self.groups = Groups(topics.queue_count, store.written)

    def join(self, request: JoinGroup, now: float, now_ms: int) -> Outcome:
        """Enters a group."""
        for name in (request.group, request.member):
            if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
                raise InvalidRequest(f"group and member names have 1 to {NAME_BYTES_MAX} bytes")
        if not 1 <= request.session_s <= SESSION_S_MAX or not request.topics:
            raise InvalidRequest(f"a member has topics, and a session of 1 to {SESSION_S_MAX:.0f} s")
        topics = tuple(sorted(set(request.topics)))
        group = self.groups.join(request.group, request.member, topics, request.session_s, now)
        return Now(self._assignment(request.group, request.member, group))

    def watch(self, request: WatchGroup, now: float, now_ms: int) -> Outcome:
        """A sign of life; answered when the generation changes."""
        group = self.groups.touch(request.group, request.member, now)
        if group.generation != request.generation or request.wait_s <= 0:
            return Now(self._assignment(request.group, request.member, group))

        def again(last: bool) -> Result | None:
            try:
                current = self.groups.touch(request.group, request.member, now)
            except PenstockError as error:
                return error
            if current.generation == request.generation and not last:
                return None
            return self._assignment(request.group, request.member, current)

        return Parked((group_waker(request.group),), now + min(request.wait_s, WAIT_S_MAX), again)

    def _assignment(self, name: str, member: str, group: Group) -> Assignment:
        committed = self._offsets.of(name)
        queues = group.members[member].queues
        return Assignment(group.generation, tuple(QueueOffset(one, committed.get(one, UNCOMMITTED)) for one in queues))

    def leave(self, request: LeaveGroup, now: float, now_ms: int) -> Outcome:
        """Leaves a group."""
        self.groups.leave(request.group, request.member)
        return Now(Done())

    def commit(self, request: CommitOffsets, now: float, now_ms: int) -> Outcome:
        """Stores positions, durably, if the caller holds the queues. None is beyond its queue's end."""
        self.groups.check_commit(
            request.group, request.member, request.generation, [one.queue for one in request.offsets]
        )
        for queue, offset in request.offsets:
            bounds = self._store.bounds(queue)
            if not 0 <= offset <= bounds.end:
                raise OffsetOutOfRange(f"{queue} ends at {bounds.end}; {offset} cannot be committed")
        if not request.offsets:
            return Now(Done())
        fact = self._offsets.fact(request.group, request.offsets)
        self._store.append([fact_record(offsets.TOPIC, fact)], now_ms)
        return AfterSync(Done(), self._store.written)

    def fetch(self, request: FetchOffsets, now: float, now_ms: int) -> Outcome:
        """Committed positions."""
        committed = self._offsets.of(request.group)
        rows = tuple(QueueOffset(queue, committed.get(queue, UNCOMMITTED)) for queue in request.queues)
        return Now(GroupOffsets(rows))

    def list_all(self, request: ListGroups, now: float, now_ms: int) -> Outcome:
        """Groups with members or offsets."""
        return Now(GroupNames(tuple(sorted({*self.groups.names, *self._offsets.groups}))))

    def describe(self, request: DescribeGroup, now: float, now_ms: int) -> Outcome:
        """Members and lag."""
        committed = dict(self._offsets.of(request.group))
        try:
            generation, members = self.groups.members(request.group)
        except GroupNotFound:
            if not committed:
                raise GroupNotFound(f"there is no group {request.group}") from None
            generation, members = 0, ()
        for member in members:
            for queue in member.queues:
                committed.setdefault(queue, UNCOMMITTED)
        lags = tuple(
            GroupLag(queue, offset, self._store.bounds(queue).end) for queue, offset in sorted(committed.items())
        )
        return Now(GroupDetail(request.group, generation, members, lags))
