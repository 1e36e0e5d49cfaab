"""What administrators ask of consumer groups: who reads what, how far, where they go on, and their end. Pure; tasks as
in ``administration.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.client.administration import ALL_BROKERS, Ask, Task
from penstock.client.arguments import Place, time_ms
from penstock.errors import Fenced, GroupNotFound, InvalidRequest, TopicNotFound
from penstock.protocol.received import MessageQueue, queue_named
from penstock.protocol.requests.groups import (
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    GroupDetail,
    GroupNames,
    GroupOffsets,
    ListGroups,
    QueueOffset,
)
from penstock.protocol.requests.messages import BoundsReply, OffsetReply, QueryBounds, SeekTime
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.topics import Bounds, DescribeTopic, TopicDetail
from penstock.protocol.topic_names import topic_of


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group at all brokers: its number of members and of queues, and its lag in messages."""

    group: str
    members: int
    queues: int
    lag: int


@dataclass(frozen=True, slots=True)
class GroupAt:
    """A group at one broker, as the broker describes it."""

    broker: str
    detail: GroupDetail


@dataclass(frozen=True, slots=True)
class Moved:
    """A group's offset in a queue, ``before`` (-1: it never committed) and ``after``, and the queue's ``end``."""

    queue: MessageQueue
    before: int
    after: int
    end: int


def groups() -> Task[list[GroupState]]:
    """All groups, by name."""
    found: dict[str, GroupState] = {}
    for route in (yield ALL_BROKERS):
        names: GroupNames = yield Ask(route.address, ListGroups(), GroupNames)
        for name in names.groups:
            try:
                detail: GroupDetail = yield Ask(route.address, DescribeGroup(name), GroupDetail)
            except GroupNotFound:
                continue  # it was deleted meanwhile
            before = found.get(name, GroupState(name, 0, 0, 0))
            members, queues = max(before.members, len(detail.members)), before.queues + len(detail.lags)
            found[name] = GroupState(name, members, queues, before.lag + lag_of(detail))
    return [found[name] for name in sorted(found)]


def lag_of(detail: GroupDetail) -> int:
    """The lag of a group in messages; all messages of a queue in which it never committed."""
    return sum([one.end - max(one.offset, 0) for one in detail.lags])


def group(name: str) -> Task[list[GroupAt]]:
    """A group at each broker that knows it. Raises ``GroupNotFound``."""
    found: list[GroupAt] = []
    for route in (yield ALL_BROKERS):
        try:
            detail: GroupDetail = yield Ask(route.address, DescribeGroup(name), GroupDetail)
        except GroupNotFound:
            continue
        found.append(GroupAt(route.broker, detail))
    if not found:
        raise _none(name)
    return found


def delete_group(name: str) -> Task[None]:
    """Deletes a group: its offsets and its waiting retries. Its dead letters stay. Raises ``GroupNotFound``; raises
    ``Fenced`` and deletes nothing if the group has members, is popped or gateways hold its position."""
    known = yield from group(name)
    for one in known:
        _check_unused(one)
    routes: Sequence[BrokerRoute] = yield ALL_BROKERS
    for route in routes:
        if any([one.broker == route.broker for one in known]):
            yield Ask(route.address, DeleteGroup(name), Done)


def _check_unused(one: GroupAt) -> None:
    if one.detail.members:
        raise Fenced(f"group {one.detail.group} has members", hint="stop its consumers first")
    if one.detail.takers:
        raise Fenced(f"group {one.detail.group} is popped by {one.detail.takers[0]}", hint="stop its consumers first")
    if one.detail.holders:
        holders = ", ".join(one.detail.holders)
        raise Fenced(f"gateways hold the position {one.detail.group}: {holders}", hint="end its subscriptions first")


def reset_group(
    name: str, topic: str = "", *, to: Place | None = None, by: int | None = None, dry_run: bool = False
) -> Task[list[Moved]]:
    """Moves a group's offsets, in all queues of ``topic``, or of all topics that it has read, and returns them.

    Args:
        to: an offset, ``"earliest"``, ``"latest"``, or a ``datetime``: the first message stored at or after it.
        by: number of messages to skip; if negative, to go back. Offsets outside a queue become the nearest in it.
        dry_run: changes nothing and returns the offsets that would result.

    Raises:
        Fenced: the group has members, or is popped.
        GroupNotFound, TopicNotFound: there is no such group or topic.
        InvalidRequest: neither or both of ``to`` and ``by`` are given, or one is illegal.
    """
    if (to is None) == (by is None):
        raise InvalidRequest("give either `to`, a place, or `by`, a number of messages")
    if by is not None and (isinstance(by, bool) or not isinstance(by, int)):
        raise InvalidRequest(f"by is a whole number of messages, not {by!r}")
    moved: list[Moved] = []
    routes: Sequence[BrokerRoute] = yield ALL_BROKERS
    for route in routes:
        queues = yield from _queues(route, name, topic)
        if not queues:
            continue
        rows = yield from _moves(route, name, queues, to, by)
        if not dry_run:
            offsets = tuple([QueueOffset(one.queue.name, one.after) for one in rows])
            yield Ask(route.address, CommitOffsets(name, "", 0, offsets), Done)
        moved += rows
    if not moved:
        raise TopicNotFound(f"there is no topic {topic}") if topic else _none(name)
    return moved


def _queues(route: BrokerRoute, name: str, topic: str) -> Task[tuple[str, ...]]:
    """The queues of a topic at a broker, or those that a group has read there."""
    try:
        if topic:
            about: TopicDetail = yield Ask(route.address, DescribeTopic(topic_of(topic)), TopicDetail)
            return tuple([bound.queue for bound in about.bounds])
        detail: GroupDetail = yield Ask(route.address, DescribeGroup(name), GroupDetail)
        return tuple([one.queue for one in detail.lags if not one.queue.startswith("~")])  # none of a filter
    except (TopicNotFound, GroupNotFound):
        return ()


def _moves(
    route: BrokerRoute, name: str, queues: tuple[str, ...], to: Place | None, by: int | None
) -> Task[list[Moved]]:
    bounds: BoundsReply = yield Ask(route.address, QueryBounds(queues), BoundsReply)
    known: GroupOffsets = yield Ask(route.address, FetchOffsets(name, queues), GroupOffsets)
    moved: list[Moved] = []
    for bound, (_, before) in zip(bounds.bounds, known.offsets, strict=True):
        if isinstance(to, datetime):
            found: OffsetReply = yield Ask(route.address, SeekTime(bound.queue, time_ms("to", to)), OffsetReply)
            wanted = found.offset
        else:
            wanted = max(before, bound.min) + by if by is not None else _offset(bound, to)
        after = min(max(wanted, bound.min), bound.end)
        moved.append(Moved(queue_named(route.broker, bound.queue), before, after, bound.end))
    return moved


def _offset(bound: Bounds, to: Place | None) -> int:
    if to == "earliest":
        return bound.min
    if to == "latest":
        return bound.end
    if isinstance(to, bool) or not isinstance(to, int):
        raise InvalidRequest(f"a place is an offset, 'earliest', 'latest' or a datetime, not {to!r}")
    return to


def _none(name: str) -> GroupNotFound:
    return GroupNotFound(f"there is no group {name}", hint="`penstock group list` shows all")
