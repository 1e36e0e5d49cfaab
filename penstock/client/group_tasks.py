"""Administration of consumer groups: members and lags, moving a group, deleting one. Pure; tasks as in
``administration.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from penstock.client.administration import ALL_BROKERS, Ask, Task, broker_named
from penstock.client.arguments import Place, check_group, check_text, time_ms
from penstock.errors import (
    Fenced,
    GroupNotFound,
    InvalidRequest,
    NoRoute,
    PenstockError,
    ResetIncomplete,
    TopicNotFound,
)
from penstock.protocol.received import MessageQueue, queue_named
from penstock.protocol.requests.groups import (
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    GroupDetail,
    GroupOffsets,
    GroupRow,
    GroupsPage,
    ListGroups,
    QueueOffset,
)
from penstock.protocol.requests.messages import BoundsReply, ListReads, OffsetReply, QueryBounds, SeekTime, TopicsRead
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.topics import Bounds, DescribeTopic, TopicDetail
from penstock.protocol.topic_names import topic_of
from penstock.values import value


@value
class GroupState:
    """A group at all brokers: its number of members and of queues, its lag in messages, and the sum of its offsets,
    ``passed``, which grows with each message that it commits."""

    group: str
    members: int
    queues: int
    lag: int
    passed: int = 0


@value
class GroupAt:
    """A group at one broker, as the broker describes it."""

    broker: str
    detail: GroupDetail


@value
class Moved:
    """A group's offset in a queue, ``before`` (-1: it never committed) and ``after``, and the queue's ``end``."""

    queue: MessageQueue
    before: int
    after: int
    end: int


@value
class BrokerReader:
    """A reader of a broker: a group, or all readers of one topic without a group.

    Attributes:
        group: a consumer group, with its ``members`` and its ``lag`` in messages at this broker; empty for all readers
            without a group: Spark jobs, ``Reader``, commands, and devices that ask for history.
        topic: the topic that the latter read; empty for a group.
        ago_s: seconds since they read last.
    """

    group: str
    topic: str
    members: int = 0
    lag: int = 0
    ago_s: float = 0.0


def broker_readers(broker: str) -> Task[list[BrokerReader]]:
    """The readers of a broker: groups with messages to read or members, and the topics that were read without a
    group in the last ten minutes. A broker does not know how far readers without a group have read, nor of those that
    are stopped or wait for their next batch. Raises ``NoRoute`` if the broker is not live."""
    check_text("broker", broker)
    route = yield from broker_named(broker, NoRoute)
    found: list[BrokerReader] = []
    for row in (yield from groups_at(route)):
        if row.lag or row.members:
            found.append(BrokerReader(row.group, "", row.members, row.lag))
    reads: TopicsRead = yield Ask(route.address, ListReads(), TopicsRead)
    return found + [BrokerReader("", one.topic, ago_s=one.ago_s) for one in reads.topics]


def groups() -> Task[list[GroupState]]:
    """All groups, by name."""
    rows: list[GroupRow] = []
    for route in (yield ALL_BROKERS):
        rows += yield from groups_at(route)
    return states_of(rows)


def states_of(rows: Iterable[GroupRow]) -> list[GroupState]:
    """The groups that brokers have, by name."""
    found: dict[str, GroupState] = {}
    for row in rows:
        before = found.get(row.group, GroupState(row.group, 0, 0, 0))
        found[row.group] = GroupState(
            row.group,
            max(before.members, row.members),
            before.queues + row.queues,
            before.lag + row.lag,
            before.passed + row.passed,
        )
    return [found[name] for name in sorted(found)]


def groups_at(route: BrokerRoute) -> Task[list[GroupRow]]:
    """All groups at one broker."""
    found: list[GroupRow] = []
    after = ""
    while True:
        page: GroupsPage = yield Ask(route.address, ListGroups(after), GroupsPage)
        found += page.groups
        after = page.after
        if not after:
            return found


def group(name: str) -> Task[list[GroupAt]]:
    """A group at each broker that knows it. Raises ``GroupNotFound``."""
    check_text("group", name)
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


def _check_unread(detail: GroupDetail) -> None:
    if detail.members:
        raise Fenced(f"group {detail.group} has members", hint="stop its consumers first")
    if detail.takers:
        raise Fenced(f"group {detail.group} is popped by {detail.takers[0]}", hint="stop its consumers first")


def _check_unused(one: GroupAt) -> None:
    _check_unread(one.detail)
    if one.detail.holders:
        holders = ", ".join(one.detail.holders)
        raise Fenced(f"gateways hold the position {one.detail.group}: {holders}", hint="end its subscriptions first")


def reset_group(
    name: str,
    topic: str = "",
    *,
    to: Place | None = None,
    by: int | None = None,
    dry_run: bool = False,
    broker: str = "",
) -> Task[list[Moved]]:
    """Moves a group's offsets, in all queues of ``topic``, or of all topics that it has read, and returns them.

    It asks all brokers before it moves anything: if one is away or refuses, nothing is moved. A broker that fails
    later is named by ``ResetIncomplete``. Repeat the call then; with ``by`` repeat it for that ``broker`` only.

    Args:
        to: an offset, ``"earliest"``, ``"latest"``, or a ``datetime``: the first message stored at or after it.
        by: number of messages to skip; if negative, to go back. Offsets outside a queue become the nearest in it.
        dry_run: changes nothing and returns the offsets that would result.
        broker: only at this broker; at all if left out.

    Raises:
        Fenced: the group has members, or is popped.
        ResetIncomplete: some brokers have moved the group, and others have not.
        GroupNotFound, TopicNotFound, NoRoute: there is no such group, topic or broker.
        InvalidRequest: neither or both of ``to`` and ``by`` are given, or one is illegal.
    """
    check_group(name)
    if (to is None) == (by is None):
        raise InvalidRequest("give either `to`, a place, or `by`, a number of messages")
    if by is not None and (isinstance(by, bool) or not isinstance(by, int)):
        raise InvalidRequest(f"by is a whole number of messages, not {by!r}")
    planned: list[tuple[BrokerRoute, list[Moved]]] = []
    routes: Sequence[BrokerRoute] = [(yield from broker_named(broker, NoRoute))] if broker else (yield ALL_BROKERS)
    for route in routes:
        queues = yield from _queues(route, name, topic, is_to_move=not dry_run)
        if queues:
            planned.append((route, (yield from _moves(route, name, queues, to, by))))
    if not planned:
        raise TopicNotFound(f"there is no topic {topic}") if topic else _none(name)
    if not dry_run:
        yield from _move(name, planned, is_repeatable=to is not None)
    return [one for _, rows in planned for one in rows]


def _move(name: str, planned: Sequence[tuple[BrokerRoute, list[Moved]]], *, is_repeatable: bool) -> Task[None]:
    """Moves a group at each broker. Raises ``ResetIncomplete``, or the error if no broker has moved it."""
    moved: list[Moved] = []
    failures: dict[str, PenstockError] = {}
    for route, rows in planned:
        offsets = tuple([QueueOffset(one.queue.name, one.after) for one in rows])
        try:
            yield Ask(route.address, CommitOffsets(name, "", 0, offsets), Done)
            moved += rows
        except PenstockError as error:
            failures[route.broker] = error
    if not failures:
        return
    if len(planned) == 1:
        raise next(iter(failures.values()))
    failed = "; ".join([f"{broker}: {error.message}" for broker, error in failures.items()])
    done = ", ".join(sorted({one.queue.broker for one in moved})) or "no broker"
    unclear = [broker for broker, error in failures.items() if error.unknown]
    hint = "repeat it; brokers that have moved it already stay where they are"
    if not is_repeatable:
        hint = f"repeat it with the broker's name (--broker {next(iter(failures))}): others would move once more"
        hint += f"; first see whether {', '.join(unclear)} has moved (`penstock group show {name}`)" if unclear else ""
    incomplete = ResetIncomplete(
        f"group {name} was moved at {done}; not at {failed}", tuple(moved), failures, hint=hint
    )
    incomplete.unknown = bool(unclear)
    raise incomplete


def _queues(route: BrokerRoute, name: str, topic: str, *, is_to_move: bool) -> Task[tuple[str, ...]]:
    """The queues of a topic at a broker, or those that a group has read there. Raises ``Fenced``."""
    read: tuple[str, ...] = ()
    try:
        detail: GroupDetail = yield Ask(route.address, DescribeGroup(name), GroupDetail)
        if is_to_move:
            _check_unread(detail)
        read = tuple([one.queue for one in detail.lags if not one.queue.startswith("~")])  # without queues of filters
    except GroupNotFound:
        pass
    if not topic:
        return read
    try:
        about: TopicDetail = yield Ask(route.address, DescribeTopic(topic_of(topic)), TopicDetail)
    except TopicNotFound:
        return ()
    return tuple([bound.queue for bound in about.bounds])


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
