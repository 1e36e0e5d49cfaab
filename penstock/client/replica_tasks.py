"""Administration of a group of copies of one broker's log: reports and orders. Pure; tasks as in ``administration.py``.

The leader knows how far all others are; each node knows the state of its own copy. So a report is made of the answers
of all nodes that answer, and an order goes to the leader. Without a leader, a report has only what the nodes say of
themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from penstock.client.administration import ALL_BROKERS, Ask, Task
from penstock.client.arguments import check_flag, check_integer, check_text
from penstock.errors import InvalidRequest, NoQuorum, NoRoute, NotLeader, PenstockError
from penstock.protocol.requests.replicas import (
    DescribeReplicas,
    ForceLeader,
    MoveLeader,
    RemoveReplica,
    ReplicaRow,
    Replicas,
    SetCopies,
    SetRole,
)
from penstock.protocol.requests.request import Done, Request
from penstock.protocol.requests.routes import BrokerRoute
from penstock.values import value

SILENT_S: Final = 3.0
"""Seconds without a word to the leader after which a node counts as away."""
LEADER: Final = "leader"
VOTER: Final = "voter"
OBSERVER: Final = "observer"


@value
class ReplicaNode:
    """A node with a copy of a broker's log. What is not known is ``None``.

    Attributes:
        role: ``leader``, ``voter`` or ``observer``.
        address, replica_address: ``host:port`` where clients and where other nodes reach it; empty: not known.
        durable: its disk has the log up to this position.
        behind: bytes that its disk lacks of the leader's log; ``behind_s``: for how many seconds it has lacked the
            first of them.
        heard_s: seconds since the leader heard it.
        answers: whether it answered just now; all below is ``None`` where it did not.
        end, last_epoch: where its log ends, and in which epoch that was written.
        damaged: bad stretches of its copy that wait for repair; ``repaired``: parts that were repaired since it began.
    """

    node: str
    role: str
    address: str = ""
    replica_address: str = ""
    durable: int | None = None
    behind: int | None = None
    behind_s: float | None = None
    heard_s: float | None = None
    answers: bool = False
    end: int | None = None
    last_epoch: int | None = None
    damaged: int | None = None
    repaired: int | None = None

    @property
    def is_voter(self) -> bool:
        """Whether it counts in a majority."""
        return self.role != OBSERVER

    @property
    def is_away(self) -> bool:
        """Whether neither its leader nor we have heard it lately."""
        return not self.answers and (self.heard_s is None or self.heard_s > SILENT_S)

    @property
    def is_level(self) -> bool:
        """Whether it is there and its disk lacks nothing."""
        return self.behind == 0 and not self.is_away


@value
class ReplicaGroup:
    """The copies of one broker's log.

    Attributes:
        group: the broker's name.
        epoch: number of the latest leadership.
        leader: the node that leads and answers; empty: none does.
        committed: everything before this position is on as many disks as it has to be on.
        end: of the leader's log, or else of the longest that answers.
        copies: minimum number of disks for messages that are acknowledged at level ``quorum``.
        nodes: by name.
        refusal: why nothing is stored just now; empty where it is.
    """

    group: str
    epoch: int
    leader: str
    committed: int
    end: int
    copies: int
    nodes: tuple[ReplicaNode, ...]
    refusal: str = ""

    @property
    def voters(self) -> list[ReplicaNode]:
        """The nodes that elect a leader."""
        return [one for one in self.nodes if one.is_voter]

    @property
    def majority(self) -> int:
        """The number of voters that can elect a leader and store."""
        return len(self.voters) // 2 + 1

    def node(self, name: str) -> ReplicaNode:
        """The node of a name. Raises ``InvalidRequest``."""
        for one in self.nodes:
            if one.node == name:
                return one
        there = ", ".join(one.node for one in self.nodes)
        raise InvalidRequest(f"broker {self.group} has no node {name}", hint=f"its nodes: {there}")


# ------------------------------------------------------------ reports


def replicas(broker: str = "", *, address: str = "") -> Task[list[ReplicaGroup]]:
    """The groups of copies of all brokers, or of one, by name.

    Args:
        broker: the broker's name; all brokers if left out.
        address: where clients reach one of its nodes, ``host:port``, if no name server answers.

    Raises ``NoRoute`` for a broker that no name server knows, and the error of a node where none of a group answers.
    """
    if address:
        return [(yield from _group_at((address,)))]
    routes: Sequence[BrokerRoute] = yield ALL_BROKERS
    known: dict[str, list[str]] = {}
    for route in routes:
        known.setdefault(route.broker, []).extend((route.address, *route.readers))
    if broker and broker not in known:
        raise NoRoute(f"there is no broker {broker!r}; there are {', '.join(known)}")
    found: list[ReplicaGroup] = []
    for name in known if not broker else [broker]:
        found.append((yield from _group_at(known[name])))
    return sorted(found, key=lambda one: one.group)


def _group_at(addresses: Sequence[str]) -> Task[ReplicaGroup]:
    """The group of the nodes at these addresses, from the answers of all that answer."""
    words: dict[str, tuple[str, Replicas]] = {}
    asked = dict.fromkeys(addresses)
    left = deque(asked)
    failed: PenstockError | None = None
    while left:
        address = left.popleft()
        try:
            said: Replicas = yield Ask(address, DescribeReplicas(), Replicas)
        except PenstockError as error:
            failed = failed or error
            continue
        words[said.node] = address, said
        more = [
            one.clients for one in said.rows if one.clients and one.heard_s <= SILENT_S and one.clients not in asked
        ]
        asked.update(dict.fromkeys(more))
        left.extend(more)
    if not words:
        raise failed or NoRoute("no address of a node is known")
    return group_of(words)


def group_of(words: dict[str, tuple[str, Replicas]]) -> ReplicaGroup:
    """The group, from the answers of its nodes. ``words``: by node, where it answered, and its answer."""
    said = max((one for _, one in words.values()), key=lambda one: (one.role == LEADER, one.epoch, one.end))
    leader = said.node if said.role == LEADER else ""
    nodes = tuple(_node(row, said, words.get(row.node)) for row in sorted(said.rows))
    return ReplicaGroup(said.group, said.epoch, leader, said.committed, said.end, said.copies, nodes, said.refusal)


def _node(row: ReplicaRow, said: Replicas, own: tuple[str, Replicas] | None) -> ReplicaNode:
    is_leader = said.role == LEADER and said.node == row.node
    durable = row.durable if row.durable >= 0 else None
    return ReplicaNode(
        row.node,
        LEADER if is_leader else VOTER if row.is_voter else OBSERVER,
        own[0] if own else row.clients,
        row.address,
        durable,
        0 if is_leader else None if durable is None else max(0, said.end - durable),
        row.behind_s if row.behind_s >= 0 else None,
        row.heard_s if row.heard_s >= 0 else None,
        own is not None,
        own[1].end if own else None,
        own[1].last_epoch if own else None,
        own[1].damaged if own else None,
        own[1].repaired if own else None,
    )


# ------------------------------------------------------------ orders


def promote_replica(nodes: str | Sequence[str], *, broker: str = "", yes_no_failover: bool = False) -> Task[None]:
    """Makes observers voters, one after the other: name as many at once as make an odd number. One that is a voter
    already stays it, so that a call which was broken off may be repeated.

    Raises ``InvalidRequest`` for a node that lacks some of the log, and for two voters, which store nothing while
    either is away, unless ``yes_no_failover``.
    """
    names = [nodes] if isinstance(nodes, str) else list(nodes)
    for name in names:
        check_text("node", name)
    check_flag("yes_no_failover", yes_no_failover)
    group = yield from _group(broker)
    for name in names:
        group.node(name)
    voters = {one.node for one in group.voters} | set(names)
    for name in names:
        yield from _order(group, SetRole(name, True, yes_no_failover or len(voters) != 2))


def demote_replica(node: str, *, broker: str = "", yes_no_failover: bool = False) -> Task[None]:
    """Makes a voter an observer: it keeps its copy and has no vote. Raises as ``promote_replica``, and
    ``InvalidRequest`` for the leader."""
    check_text("node", node)
    check_flag("yes_no_failover", yes_no_failover)
    yield from _order((yield from _group(broker)), SetRole(node, False, yes_no_failover))


def remove_replica(node: str, *, broker: str = "", yes_no_failover: bool = False) -> Task[None]:
    """Takes a node out of the group. Its folder stays, and is of no use to this group any more. Raises as
    ``demote_replica``."""
    check_text("node", node)
    check_flag("yes_no_failover", yes_no_failover)
    yield from _order((yield from _group(broker)), RemoveReplica(node, yes_no_failover))


def replace_replica(node: str, by: str, *, broker: str = "") -> Task[None]:
    """Puts a node that has joined in the place of one whose disk is lost: with its role, and the old one leaves. A call
    that was broken off may be repeated. Raises ``InvalidRequest`` where the new one lacks some of the log."""
    check_text("node", node)
    check_text("by", by)
    group = yield from _group(broker)
    was = next((one for one in group.nodes if one.node == node), None)
    if was is None and group.node(by).is_voter:
        return
    if group.node(node).is_voter:
        group.node(by)
        yield from _order(group, SetRole(by, True, True))
    yield from _order(group, RemoveReplica(node, True))


def set_copies(copies: int, *, broker: str = "") -> Task[None]:
    """Sets on how many disks a message is before it is acknowledged at level ``quorum``, whatever a majority is. While
    fewer nodes are there nothing is stored. Raises ``InvalidRequest``."""
    check_integer("copies", copies)
    yield from _order((yield from _group(broker)), SetCopies(copies))


def move_leader(node: str, *, broker: str = "") -> Task[None]:
    """Begins to move the lead to a voter: nothing is stored until it leads, usually for less than a second, and nothing
    is lost. If it does not come to lead, the leader goes on; ``replicas`` tells. Raises ``InvalidRequest`` for an
    observer."""
    check_text("node", node)
    group = yield from _group(broker)
    if not group.node(node).is_voter:
        raise InvalidRequest(
            f"node {node} is an observer, and cannot lead", hint=f"promote it first: penstock replica promote {node}"
        )
    if group.leader != node:
        yield from _order(group, MoveLeader(node))


def force_leader(node: str, lost: str | Sequence[str], *, broker: str = "", address: str = "") -> Task[None]:
    """Has a node lead although a majority of its group is lost for good. What only the lost nodes had is lost, though
    it may have been acknowledged; they are members no more, and must never be started again with their old folders.

    Args:
        lost: names of the nodes that are given up.
        address: where clients reach a node that is left, if no name server answers.

    Raises ``InvalidRequest`` where a majority is left, for a lost node that answers, and where another node that
    answers has more of the log.
    """
    names = (lost,) if isinstance(lost, str) else tuple(lost)
    for name in (node, *names):
        check_text("node", name)
    group = yield from _group(broker, address)
    check_forced(group, node, names)
    yield Ask(group.node(node).address, ForceLeader(names), Done)


def check_forced(group: ReplicaGroup, node: str, lost: Sequence[str]) -> None:
    """Raises ``InvalidRequest`` where forcing this node to lead would lose more than it must."""
    chosen = group.node(node)
    if not chosen.answers:
        raise InvalidRequest(
            f"node {node} does not answer", hint="start it, or say where clients reach it: --address HOST:PORT"
        )
    for name in lost:
        if group.node(name).answers:
            raise InvalidRequest(f"node {name} answers: it is not lost", hint="name only the nodes that are lost")
    there = [one for one in group.nodes if one.answers]
    ahead = max(there, key=_newest)
    if _newest(ahead) > _newest(chosen):
        raise InvalidRequest(
            f"node {ahead.node} has log that {node} lacks: what is acknowledged would be lost without need",
            hint=f"force {ahead.node} instead",
        )


def _newest(node: ReplicaNode) -> tuple[int, int]:
    return node.last_epoch or 0, node.end or 0


def _group(broker: str, address: str = "") -> Task[ReplicaGroup]:
    """The group of one broker. Raises ``InvalidRequest`` where it must be named."""
    groups = yield from replicas(broker, address=address)
    if len(groups) > 1:
        raise InvalidRequest(f"say at which broker: {', '.join(one.group for one in groups)}")
    return groups[0]


def _order(group: ReplicaGroup, request: Request) -> Task[None]:
    """Sends an order to the leader; if the lead has moved meanwhile, to the new one."""
    if not group.leader:
        away = [one.node for one in group.voters if one.is_away]
        raise NoQuorum(
            f"no node of broker {group.group} leads" + (f": {' and '.join(away)} do not answer" if away else ""),
            hint="an election takes a few seconds; start the nodes that are away; if a majority is lost for good:"
            " penstock replica force-leader --help",
        )
    address = group.node(group.leader).address
    try:
        yield Ask(address, request, Done)
    except NotLeader as error:
        if not error.leader:
            raise
        yield Ask(error.leader, request, Done)
