"""Replication between the nodes of a group of copies. Codes 130 to 145; never on the clients' port.

Positions are those of the log, ``end`` is behind a frame, ``epoch`` numbers a leadership.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from penstock.protocol.requests.request import Bytes, Done, Reply, Request, value


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
        return len(self.voters) // 2 + 1

    def get(self, node: str) -> Member | None:
        """The member of this name."""
        return next((one for one in self.nodes if one.node == node), None)

    def is_voter(self, node: str) -> bool:
        """Whether it counts in a majority."""
        return any(one.is_voter for one in self.nodes if one.node == node)


class MembersAt(NamedTuple):
    """Who the members are from this position of the log on, where the record of it begins."""

    position: int
    members: Members


class EpochAt(NamedTuple):
    """An epoch, and the position at which its first frame begins."""

    epoch: int
    position: int


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
    where it has not taken the entries, the logs may be equal at most up to there; else -1."""

    epoch: int
    durable: int
    round: int
    conflict: int = -1


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
