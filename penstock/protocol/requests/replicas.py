"""Replication between the nodes of a group of copies, codes 130 to 145: between nodes at a port of their own, and what
operators ask of a group (135, 137 to 140 and 142) at the clients' port.

Positions are those of the log, ``end`` is behind a frame, ``epoch`` numbers a leadership.
"""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from penstock.protocol.requests.request import Bytes, Done, Reply, Request, value

SPEAKS: Final = 1
"""Version of what nodes of a group say to each other and store (docs/formats/replica.md): it grows when nodes of the
one before it could no longer follow, or lead, what this code does."""
SPEAKS_FROM: Final = 1
"""The oldest version that this code works with in one group."""


class Member(NamedTuple):
    """A node of a group. ``uuid``: of its data folder. One that is no voter is an observer: it has a copy, and counts
    in no majority."""

    node: str
    uuid: str
    address: str = ""
    is_voter: bool = True


class Members(NamedTuple):
    """The nodes of a group. ``copies``: minimum number of disks for an entry to be committed, whatever a majority is.
    ``segment_bytes``: size of the files of the log, 0: as each node's settings say."""

    nodes: tuple[Member, ...] = ()
    copies: int = 1
    segment_bytes: int = 0

    @property
    def voters(self) -> list[str]:
        """Names of the members that vote."""
        return [one.node for one in self.nodes if one.is_voter]

    @property
    def majority(self) -> int:
        """Number of voters that decide."""
        return sum([one.is_voter for one in self.nodes]) // 2 + 1

    def get(self, node: str) -> Member | None:
        """The member of this name."""
        return next((one for one in self.nodes if one.node == node), None)

    def is_voter(self, node: str) -> bool:
        """Whether it counts in a majority."""
        return any(one.is_voter for one in self.nodes if one.node == node)


class MembersAt(NamedTuple):
    """The members of the group from a position of the log on, where their record begins."""

    position: int
    members: Members


class EpochAt(NamedTuple):
    """An epoch, and the position at which its first frame begins."""

    epoch: int
    position: int


@value
class ReplicaWelcome(Reply):
    """``node``, ``uuid``: the node that answers. ``cluster``: the group's id, empty where it has none yet. ``leader``:
    the address for replicas of the leader, where it is known. ``clients``, ``namesrv``: where clients reach the node,
    and its name servers. ``nonce``: to the first hello; with the second one's answer the node's own ``proof``."""

    cluster: str
    node: str
    uuid: str
    leader: str
    clients: str
    namesrv: tuple[str, ...]
    nonce: bytes = b""
    proof: bytes = b""


@value
class ReplicaHello(Request):
    """The first request of a connection between nodes, twice: with a nonce, and with the proof over both nonces that
    the node has the key of the cluster. ``cluster``: empty for a node that is new. ``address``: of its port for
    replicas. ``speaks``: its version of the replication. ``speaks_from``: the oldest that it works with."""

    code: ClassVar[int] = 130
    reply: ClassVar[type[Reply]] = ReplicaWelcome
    cluster: str
    group: str
    node: str
    uuid: str
    address: str
    clients: str
    namesrv: tuple[str, ...]
    nonce: bytes
    proof: bytes = b""
    speaks: int = 1
    speaks_from: int = 1


@value
class Vote(Reply):
    """``epoch``: the one that was asked for where the vote is granted, else the highest that the voter knows."""

    epoch: int
    is_granted: bool
    is_pre: bool


@value
class AskVote(Request):
    """A candidate asks for a vote. ``last_epoch``, ``end``: of its log. ``is_pre``: whether there would be a vote, if
    it began an election; nothing is promised. ``is_move``: the leader has asked it to take the lead."""

    code: ClassVar[int] = 131
    reply: ClassVar[type[Reply]] = Vote
    epoch: int
    candidate: str
    last_epoch: int
    end: int
    is_pre: bool
    is_move: bool = False


@value
class Taken(Reply):
    """``durable``: the follower's disk has the leader's log up to there. ``round``: that of the request. ``conflict``:
    where it has not taken the entries, the logs may be equal at most up to there; else -1. ``is_full``: its disk has no
    room for more. ``sync_s``: what its latest sync has taken, or takes already."""

    epoch: int
    durable: int
    round: int
    conflict: int = -1
    is_full: bool = False
    sync_s: float = 0.0


@value
class TakeEntries(Request):
    """The leader's log from ``position``, where a frame of epoch ``before`` ends, to ``end``: with equal ones, only a
    sign of life. ``epochs`` and ``members``: what begins in between. ``body`` is the frames."""

    code: ClassVar[int] = 132
    reply: ClassVar[type[Reply]] = Taken
    epoch: int
    leader: str
    position: int
    before: int
    end: int
    committed: int
    round: int
    epochs: tuple[EpochAt, ...] = ()
    members: tuple[MembersAt, ...] = ()
    body: Bytes = b""


@value
class TakeLead(Request):
    """The leader asks a voter that has all of its log to begin an election at once."""

    code: ClassVar[int] = 141
    reply: ClassVar[type[Reply]] = Done
    epoch: int


@value
class LogStretch(Reply):
    """``body``: whole frames from ``position`` on, all committed; none where there are none. ``before``: epoch of the
    frame that ends there. ``start``: first position of this copy. ``committed``: as far as its node knows. ``is_raw``:
    the body is what the disk has there, wherever frames begin and end."""

    position: int
    before: int
    start: int
    committed: int
    body: Bytes = b""
    is_raw: bool = False


@value
class FetchLog(Request):
    """Asks for committed bytes of the log from a position on, for repair and whole copies. ``Damaged`` where this copy
    is bad there itself. ``is_raw``: exactly the requested number of bytes, as the disk has them and unchecked: the
    caller knows where the next ones begin before these have come. A node that does not know this yet sends whole
    frames."""

    code: ClassVar[int] = 134
    reply: ClassVar[type[Reply]] = LogStretch
    is_repeatable: ClassVar[bool] = True
    position: int
    bytes_max: int
    is_raw: bool = False


class ReplicaRow(NamedTuple):
    """A node of a group, as its leader knows it; ``durable`` and ``heard_s`` are -1 where that is not known, as at any
    other node.

    ``address``: of its port for replicas. ``clients``: where clients reach it. ``durable``: its disk has the log up to
    there. ``heard_s``: seconds since it answered last. ``behind_s``: for how long its disk has lacked what it lacks; -1
    where that is not known.
    """

    node: str
    uuid: str
    address: str
    is_voter: bool
    clients: str = ""
    durable: int = -1
    heard_s: float = -1.0
    behind_s: float = -1.0


@value
class Replicas(Reply):
    """A group of copies, as the node that was asked knows it.

    ``group``: the broker's name. ``node``: the node that was asked. ``role``: its own: ``leader``, ``candidate``,
    ``follower`` or ``observer``. ``leader``: the leader's name, empty where none is known. ``committed``, ``end``: of
    its log. ``copies``: minimum number of disks for an entry. ``refusal``: why the leader takes nothing just now, empty
    where it does. ``damaged``: bad stretches of its copy that are to be repaired. ``repaired``: parts of its log that
    were written again since it began. ``last_epoch``: in which its log ends.
    """

    group: str
    node: str
    role: str
    epoch: int
    leader: str
    committed: int
    end: int
    copies: int
    rows: tuple[ReplicaRow, ...]
    refusal: str = ""
    damaged: int = 0
    repaired: int = 0
    last_epoch: int = 0


@value
class DescribeReplicas(Request):
    """Asks for the members of the group and how far each is. Any node answers."""

    code: ClassVar[int] = 135
    reply: ClassVar[type[Reply]] = Replicas
    is_repeatable: ClassVar[bool] = True


@value
class AddReplica(Request):
    """A new node asks the leader, at its port for replicas, to become an observer. Answered when that is committed."""

    code: ClassVar[int] = 136
    reply: ClassVar[type[Reply]] = Done
    node: str
    uuid: str
    address: str


@value
class SetRole(Request):
    """A member becomes a voter, or an observer. Answered when that is committed. The leader alone does it; others
    answer ``NotLeader``. A voter must have all that is committed first: ``InvalidRequest`` until then. ``allows_two``:
    also where two voters are left, neither of which may be away."""

    code: ClassVar[int] = 137
    reply: ClassVar[type[Reply]] = Done
    node: str
    is_voter: bool
    allows_two: bool = False


@value
class RemoveReplica(Request):
    """A member leaves the group; as ``SetRole``. The leader does not remove itself: the lead is moved first."""

    code: ClassVar[int] = 138
    reply: ClassVar[type[Reply]] = Done
    node: str
    allows_two: bool = False


@value
class MoveLeader(Request):
    """A voter is to lead. Answered when the move has begun; the leader takes no messages meanwhile, and leads on if the
    voter does not within an election's time. ``DescribeReplicas`` tells who leads then."""

    code: ClassVar[int] = 139
    reply: ClassVar[type[Reply]] = Done
    node: str


@value
class ForceLeader(Request):
    """The node that is asked leads from now on, without the ``lost`` ones, which are members no more: for a group that
    has lost its majority for good. What only they had is lost. They must name every member that does not answer."""

    code: ClassVar[int] = 140
    reply: ClassVar[type[Reply]] = Done
    lost: tuple[str, ...]


@value
class SetCopies(Request):
    """On how many disks an entry is before it is committed, whatever a majority is; as ``SetRole``."""

    code: ClassVar[int] = 142
    reply: ClassVar[type[Reply]] = Done
    copies: int
