"""Consumer groups: members, their queues, committed offsets. Codes 70 to 89."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from penstock.protocol.requests.request import Done, Reply, Request, value

STRATEGIES: Final = ("average", "circle", "hash", "configured", "room", "nearest-room")
"""How a broker may deal its queues to the members of a group (docs/guide/backend.md)."""
REMOTING: Final = "remoting"
"""As ``average``, of the one member that stands for a group of RocketMQ's clients: it keeps native members out."""
PAGE: Final = 500
"""Maximum number of groups in one page."""


class QueueOffset(NamedTuple):
    """A consumer position: the next offset to read."""

    queue: str
    offset: int


class Tried(NamedTuple):
    """A message at which an ordered queue waits: how often members have tried it."""

    queue: str
    offset: int
    attempts: int


class Progress(NamedTuple):
    """A holder's progress in a queue, or the position in it.

    Attributes:
        offset: all before it is acknowledged; -1: the position is to stay where it is, or is nowhere yet.
        set_backs: how often the position was set back, as far as the holder knows.
    """

    queue: str
    offset: int
    set_backs: int


class MemberInfo(NamedTuple):
    """A consumer group's member and the queues that it holds. ``pending``: those that are assigned to it while another
    member holds them."""

    member: str
    queues: tuple[str, ...]
    pending: tuple[str, ...] = ()


class GroupLag(NamedTuple):
    """Progress of a group in one queue; ``offset`` is -1 where it never committed."""

    queue: str
    offset: int
    end: int


@value
class Assignment(Reply):
    """The queues that a member holds in this generation, with the offsets to start from (-1: never committed).
    ``log_id``: the log in which these are; empty where the broker does not tell. ``filter``: the group's, with which
    its members pull. ``pending``: queues that it gets once their holders have released them. ``tried``: messages of
    its queues that earlier holders of an ordered group have tried."""

    generation: int
    queues: tuple[QueueOffset, ...]
    log_id: str = ""
    filter: str = ""
    pending: tuple[str, ...] = ()
    tried: tuple[Tried, ...] = ()


@value
class JoinGroup(Request):
    """Enters a group, or changes the subscription. The member is dropped ``session_s`` seconds after its last
    word.

    ``filter``, ``strategy``, ``ordered`` and ``attempts`` are the group's: a member with other values is
    ``InvalidRequest``, unless ``force`` changes them for all. ``filter``: a selector; empty for all messages.
    ``strategy``: how queues are dealt, one of ``STRATEGIES``. ``ordered``: queues are handed over in two steps
    (``WatchGroup``); all members have the same ``session_s``. ``attempts``: how often a message is tried, then the
    waits in between in ms; empty as usual. ``room``: where the member is. ``queues``: those that it asks for by name
    (``configured``). ``lets_go``: its own queues are handed over in two steps. ``holding``: queues of an ordered group
    that it held when it lost the broker; one that began anew leaves them to it.
    """

    code: ClassVar[int] = 70
    reply: ClassVar[type[Reply]] = Assignment
    group: str
    member: str
    topics: tuple[str, ...]
    session_s: float = 30.0
    filter: str = ""
    strategy: str = "average"
    room: str = ""
    queues: tuple[str, ...] = ()
    force: bool = False
    ordered: bool = False
    lets_go: bool = False
    holding: tuple[str, ...] = ()
    attempts: tuple[int, ...] = ()


@value
class WatchGroup(Request):
    """Heartbeat and long poll in one: answers at once when what the member holds or awaits has changed since
    ``generation``, else waits up to ``wait_s``. Where queues are handed over in two steps, the member has released all
    queues that it held before ``generation`` and does not hold in it; until it says so it may commit."""

    code: ClassVar[int] = 71
    reply: ClassVar[type[Reply]] = Assignment
    group: str
    member: str
    generation: int
    wait_s: float


@value
class LeaveGroup(Request):
    """A member's end: its queues go to the others at once."""

    code: ClassVar[int] = 72
    reply: ClassVar[type[Reply]] = Done
    group: str
    member: str


@value
class CommitOffsets(Request):
    """Stores positions of a group, durably. With a member, it must hold those queues, since that generation at least
    (else ``Fenced``); with member "" it is a tool's reset, allowed while the group has no members."""

    code: ClassVar[int] = 73
    reply: ClassVar[type[Reply]] = Done
    group: str
    member: str
    generation: int
    offsets: tuple[QueueOffset, ...]


@value
class GroupOffsets(Reply):
    """Committed positions of queues, -1 for none."""

    offsets: tuple[QueueOffset, ...]


@value
class FetchOffsets(Request):
    """Committed positions of a group, in the order asked; -1 where it never committed."""

    code: ClassVar[int] = 74
    reply: ClassVar[type[Reply]] = GroupOffsets
    is_repeatable: ClassVar[bool] = True
    group: str
    queues: tuple[str, ...]


class GroupRow(NamedTuple):
    """A group at a broker: its number of members and of queues that it reads, the sum of its offsets in them, and its
    lag in messages (all messages of a queue in which it never committed)."""

    group: str
    members: int
    queues: int
    passed: int
    lag: int


@value
class GroupsPage(Reply):
    """``after`` continues; it is empty at the end."""

    groups: tuple[GroupRow, ...]
    after: str


@value
class ListGroups(Request):
    """Groups in order of their names, those after ``after`` with ``contains`` in their names."""

    code: ClassVar[int] = 75
    reply: ClassVar[type[Reply]] = GroupsPage
    is_repeatable: ClassVar[bool] = True
    after: str = ""
    count_max: int = PAGE
    contains: str = ""


@value
class GroupDetail(Reply):
    """``holders``: gateways that hold its position for subscriptions. ``filter``, ``strategy``, ``ordered``: those of
    its members; empty where it has none. ``takers``: who pops as the group now."""

    group: str
    generation: int
    members: tuple[MemberInfo, ...]
    lags: tuple[GroupLag, ...]
    holders: tuple[str, ...] = ()
    filter: str = ""
    strategy: str = ""
    ordered: bool = False
    takers: tuple[str, ...] = ()


@value
class DescribeGroup(Request):
    """A question for a group's members, offsets and lags."""

    code: ClassVar[int] = 76
    reply: ClassVar[type[Reply]] = GroupDetail
    is_repeatable: ClassVar[bool] = True
    group: str


@value
class DeleteGroup(Request):
    """Forgets a group's offsets and deletes the topic of its retries. ``Fenced`` while it has members, is popped or its
    position is held, ``GroupNotFound`` where there is nothing of it."""

    code: ClassVar[int] = 78
    reply: ClassVar[type[Reply]] = Done
    group: str


@value
class HeldOffsets(Reply):
    """``log_id``: the log in which the offsets are; empty where the broker does not tell."""

    progress: tuple[Progress, ...]
    log_id: str = ""


@value
class HoldOffsets(Request):
    """A gateway holds a group's position for its subscriptions of that name: for ``lease_s`` seconds, 0 with its last
    word. ``progress`` names all queues in which it has a say. In each the position moves to where the holder is that
    has come least far, never back, and not while the group has members (``Fenced``, unless nothing is to move).
    Answered with where it is, in the order of ``progress``. If a queue's position was set back more often than the
    holder knows, its report for the queue does not count. ``log_id``: the log in which the offsets of ``progress`` are,
    by an earlier answer; another log answers ``LogReplaced``, and nothing moves."""

    code: ClassVar[int] = 77
    reply: ClassVar[type[Reply]] = HeldOffsets
    group: str
    holder: str
    lease_s: float
    progress: tuple[Progress, ...]
    log_id: str = ""


@value
class NoteAttempts(Request):
    """A member of an ordered group says how often it has tried messages at which its queues wait, so that the next
    holder counts on. Messages that the group has passed are left out. Durable when it is answered. ``Fenced`` as a
    commit."""

    code: ClassVar[int] = 79
    reply: ClassVar[type[Reply]] = Done
    group: str
    member: str
    generation: int
    tried: tuple[Tried, ...]
