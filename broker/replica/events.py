"""Events that go into the core of a group, and messages that come out of it."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from broker.replica.log_face import HardState
from penstock.protocol.requests.replicas import AskVote, EpochAt, Members, MembersAt, TakeEntries, TakeLead, Taken, Vote

Message = AskVote | Vote | TakeEntries | Taken | TakeLead


class Timing(NamedTuple):
    """The times of a group. ``election_s``: a follower that has heard no leader for one to two times this asks for
    votes. ``gap_s``: the longest time that a gap between two ticks counts as.
    ``mark_s``: a mark that has grown is saved when no sync has ended for this long."""

    election_s: float = 1.0
    heartbeat_s: float = 0.1
    gap_s: float = 0.2
    mark_s: float = 0.05
    window_bytes: int = 8 << 20


class Tick(NamedTuple):
    """Time has passed; several in ``heartbeat_s``."""


class Received(NamedTuple):
    """A message from a node, whose data folder has this ``uuid``."""

    node: str
    uuid: str
    message: Message


class Durable(NamedTuple):
    """This disk has everything before ``point``. No cut came between the sync's begin and its end."""

    point: int


class Ended(NamedTuple):
    """The log ends there now: a leader has appended, and these epochs and changes of the members begin in it; or a
    follower's disk had no room for all that it was given."""

    end: int
    epochs: tuple[EpochAt, ...] = ()
    changes: tuple[MembersAt, ...] = ()


class Read(NamedTuple):
    """A requested stretch for a peer: whole frames from ``position`` to ``end``. The core does not look at
    ``body``."""

    peer: str
    position: int
    end: int
    body: Any = b""


class Lost(NamedTuple):
    """The connection to a peer has ended."""

    peer: str


class Missing(NamedTuple):
    """The news that this copy has damage before the committed position, or no longer: with damage its node does not
    lead."""

    is_missing: bool


class MoveLead(NamedTuple):
    """This voter is to lead. If the name is no voter's, the move is given up."""

    node: str


class Force(NamedTuple):
    """A group has lost its majority for good: this node leads from now on, and these are the members. What of the log
    only others had is lost."""

    members: Members


Event = Tick | Received | Durable | Ended | Read | Lost | Missing | MoveLead | Force


class RoleKind(Enum):
    """The role of a node in its group."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Role(NamedTuple):
    """A node's role. ``leader``: of the epoch, where it is known."""

    kind: RoleKind
    epoch: int
    leader: str = ""


class ToPeer(NamedTuple):
    """A message on its way to a node."""

    node: str
    message: Message


class Peer(NamedTuple):
    """Another node, as the leader knows it: up to where its disk has the log, for how many seconds it has lacked the
    rest, and how long ago it was heard."""

    node: str
    durable: int
    heard_s: float
    behind_s: float


class Ask(NamedTuple):
    """A peer lacks the log from ``position`` on: ``Read`` answers."""

    peer: str
    position: int


class Ready(NamedTuple):
    """The effects to carry out, in this order: save, cut, write, send; then commit, and act by the role.

    Attributes:
        save: made durable before ``after_save`` leaves.
        cut_at: the own log is cut there before anything is written.
        take: entries whose body is written to the own log, from its end on; each goes to the disk with the next sync.
        send: may leave at once, before anything above is done.
        after_save: leaves when ``save`` is durable.
        asks: stretches to be read for peers.
        committed: everything before there may be taken in and read.
        confirmed: the latest round that a majority has answered since it began.
    """

    save: HardState | None
    cut_at: int | None
    take: tuple[TakeEntries, ...]
    send: tuple[ToPeer, ...]
    after_save: tuple[ToPeer, ...]
    asks: tuple[Ask, ...]
    committed: int
    role: Role
    confirmed: int
