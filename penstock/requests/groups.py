"""Consumer groups: members, their queues, committed offsets. Codes 70 to 89."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from penstock.requests.request import Done, Reply, Request


class QueueOffset(NamedTuple):
    """A consumer position: the next offset to read."""

    queue: str
    offset: int


class MemberInfo(NamedTuple):
    """A consumer group's member and the queues that it holds."""

    member: str
    queues: tuple[str, ...]


class GroupLag(NamedTuple):
    """Progress of a group in one queue; ``offset`` is -1 where it never committed."""

    queue: str
    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class Assignment(Reply):
    """The queues that a member holds in this generation, with the offsets to start from (-1: never committed)."""

    generation: int
    queues: tuple[QueueOffset, ...]


@dataclass(frozen=True, slots=True)
class JoinGroup(Request):
    """Enters a group, or changes what is subscribed. The member is dropped ``session_s`` seconds after its last
    word."""

    code: ClassVar[int] = 70
    reply: ClassVar[type[Reply]] = Assignment
    group: str
    member: str
    topics: tuple[str, ...]
    session_s: float = 30.0


@dataclass(frozen=True, slots=True)
class WatchGroup(Request):
    """Heartbeat and long poll in one: answers at once when the group's generation is not ``generation``, else waits
    up to ``wait_s``."""

    code: ClassVar[int] = 71
    reply: ClassVar[type[Reply]] = Assignment
    group: str
    member: str
    generation: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class LeaveGroup(Request):
    code: ClassVar[int] = 72
    reply: ClassVar[type[Reply]] = Done
    group: str
    member: str


@dataclass(frozen=True, slots=True)
class CommitOffsets(Request):
    """Stores positions of a group, durably. With a member, it must hold those queues in that generation (else
    ``Fenced``); with member "" it is a tool's reset, allowed while the group has no members."""

    code: ClassVar[int] = 73
    reply: ClassVar[type[Reply]] = Done
    group: str
    member: str
    generation: int
    offsets: tuple[QueueOffset, ...]


@dataclass(frozen=True, slots=True)
class GroupOffsets(Reply):
    offsets: tuple[QueueOffset, ...]


@dataclass(frozen=True, slots=True)
class FetchOffsets(Request):
    """Committed positions of a group, in the order asked; -1 where it never committed."""

    code: ClassVar[int] = 74
    reply: ClassVar[type[Reply]] = GroupOffsets
    group: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupNames(Reply):
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListGroups(Request):
    code: ClassVar[int] = 75
    reply: ClassVar[type[Reply]] = GroupNames


@dataclass(frozen=True, slots=True)
class GroupDetail(Reply):
    group: str
    generation: int
    members: tuple[MemberInfo, ...]
    lags: tuple[GroupLag, ...]


@dataclass(frozen=True, slots=True)
class DescribeGroup(Request):
    code: ClassVar[int] = 76
    reply: ClassVar[type[Reply]] = GroupDetail
    group: str
