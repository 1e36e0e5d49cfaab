"""Every request and reply of Penstock, as data. ``wire.py`` gives them bytes; ``link.py`` carries them.

Names end with what they do, numbers with their unit. A request says which reply answers it. Fields only ever grow at
the end, with a default: an older peer then still understands (docs/formats/wire.md).

Queues are named by strings (``topicmap.queues``): ``telemetry:0`` is queue 0 of a topic, ``~filter:a/+`` the light
queue of an MQTT filter. An *offset* is a place in a queue, a *position* is a place in the log, in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from penstock.errors import PenstockError

Bytes = bytes | memoryview


# ---------------------------------------------------------------- values inside requests and replies


class TopicRoute(NamedTuple):
    """A topic as a broker offers it."""

    topic: str
    queues: int
    writable: bool = True


class BrokerRoute(NamedTuple):
    """One broker that holds queues of a topic. ``address`` is ``host:port``."""

    broker: str
    address: str
    queues: int
    writable: bool = True


class Bounds(NamedTuple):
    """Where a queue begins and ends: readable offsets are ``min <= offset < end``; ``end`` counts what has reached
    the level."""

    queue: str
    min: int
    end: int


class Placed(NamedTuple):
    """Where one appended record went; ``offset`` is in its topic queue."""

    queue_id: int
    offset: int
    position: int


class Refused(NamedTuple):
    """One record of an Append that was not stored, by its place in the batch."""

    at: int
    code: int
    message: str


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


class SessionSave(NamedTuple):
    """What its owner keeps of an MQTT session. ``will``, ``terms`` (subscriptions) and ``flow`` (places and open
    exchanges) are the gateway's own bytes; empty ones stay as they were. ``state``: ``CONNECTED``, ``GONE``: the
    client is gone, the owner still has something to do, ``RELEASED``: whoever opens it next has it."""

    client: str
    epoch: int
    state: int
    expiry_s: int
    will: bytes = b""
    terms: bytes = b""
    flow: bytes = b""


class SessionCall(NamedTuple):
    """Somebody else asks for a session that the caller has; ``clean``: to end it."""

    client: str
    epoch: int
    clean: bool


# ---------------------------------------------------------------- requests and replies


@dataclass(frozen=True, slots=True)
class Reply:
    """Base of all replies."""


@dataclass(frozen=True, slots=True)
class Request:
    """Base of all requests. ``code`` stands for the type on the wire, ``reply`` is the type of the answer."""

    code: ClassVar[int] = 0
    reply: ClassVar[type[Reply]]


@dataclass(frozen=True, slots=True)
class Done(Reply):
    """The request was carried out and has nothing to tell."""


# -- every server (1-9)


@dataclass(frozen=True, slots=True)
class ServerInfo(Reply):
    role: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Ping(Request):
    """Is somebody there, and who?"""

    code: ClassVar[int] = 1
    reply: ClassVar[type[Reply]] = ServerInfo


# -- name server (10-29)


@dataclass(frozen=True, slots=True)
class RegisterBroker(Request):
    """A broker tells who it is and what it holds; it repeats this every 30 s. The lease ends ``lease_s`` seconds
    later."""

    code: ClassVar[int] = 10
    reply: ClassVar[type[Reply]] = Done
    broker: str
    address: str
    version: int
    lease_s: float
    topics: tuple[TopicRoute, ...]


@dataclass(frozen=True, slots=True)
class HeartbeatReply(Reply):
    """``known`` is false where the broker must register again: lease gone, or another version of its topics is on
    file."""

    known: bool


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat(Request):
    """Renews a broker's lease without repeating its topics."""

    code: ClassVar[int] = 11
    reply: ClassVar[type[Reply]] = HeartbeatReply
    broker: str
    address: str
    version: int
    lease_s: float


@dataclass(frozen=True, slots=True)
class UnregisterBroker(Request):
    code: ClassVar[int] = 12
    reply: ClassVar[type[Reply]] = Done
    broker: str
    address: str


@dataclass(frozen=True, slots=True)
class Route(Reply):
    """Brokers of a topic, ordered by name; empty when no live broker has it."""

    brokers: tuple[BrokerRoute, ...]


@dataclass(frozen=True, slots=True)
class QueryRoute(Request):
    """Who has this topic? With an empty topic: all live brokers (``queues`` is then 0)."""

    code: ClassVar[int] = 13
    reply: ClassVar[type[Reply]] = Route
    topic: str


@dataclass(frozen=True, slots=True)
class TopicNames(Reply):
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryTopics(Request):
    """Names of all topics of live brokers, sorted."""

    code: ClassVar[int] = 14
    reply: ClassVar[type[Reply]] = TopicNames


# -- broker: topics (30-39)


class TopicInfo(NamedTuple):
    """Configuration of a topic. ``level`` is ``cache`` or ``disk``."""

    topic: str
    queues: int
    level: str


@dataclass(frozen=True, slots=True)
class TopicDetail(Reply):
    topic: str
    queues: int
    level: str
    bounds: tuple[Bounds, ...]


@dataclass(frozen=True, slots=True)
class CreateTopic(Request):
    """Creates a topic; doing it again with the same configuration is fine. ``queues`` or ``level`` 0/"" take the
    default."""

    code: ClassVar[int] = 30
    reply: ClassVar[type[Reply]] = TopicDetail
    topic: str
    queues: int = 0
    level: str = ""


@dataclass(frozen=True, slots=True)
class DescribeTopic(Request):
    """Configuration and bounds of a topic. With ``create``, policy may create it."""

    code: ClassVar[int] = 31
    reply: ClassVar[type[Reply]] = TopicDetail
    topic: str
    create: bool = False


@dataclass(frozen=True, slots=True)
class TopicList(Reply):
    topics: tuple[TopicInfo, ...]


@dataclass(frozen=True, slots=True)
class ListTopics(Request):
    """The broker's topics, sorted, without the system's own."""

    code: ClassVar[int] = 32
    reply: ClassVar[type[Reply]] = TopicList


# -- broker: messages (40-59)


@dataclass(frozen=True, slots=True)
class Appended(Reply):
    """``level`` was reached by every record that is not ``refused``. ``placed`` is empty unless ``detail`` was asked
    for; else it has one entry per record, in order (zeros for a refused one)."""

    level: str
    placed: tuple[Placed, ...] = ()
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True, slots=True)
class Append(Request):
    """Stores records. ``body`` is whole records end to end, ``count`` of them (``message.encode_record``). Each is
    stored or refused on its own; the reply comes when the topic's level is reached. ``detail`` asks for ``placed``."""

    code: ClassVar[int] = 40
    reply: ClassVar[type[Reply]] = Appended
    count: int
    detail: bool
    body: Bytes


@dataclass(frozen=True, slots=True)
class Pulled(Reply):
    """``count`` messages. ``body``: ``count`` entries (``message.ENTRY``), then their log frames, untouched, in that
    order. ``next`` is the offset to pull next: with a tag filter it may pass entries that did not match.
    ``min``/``end``: the bounds."""

    count: int
    next: int
    min: int
    end: int
    body: Bytes


@dataclass(frozen=True, slots=True)
class Pull(Request):
    """Messages of a queue from ``offset`` on. Where there is none yet it waits up to ``wait_s`` for one (long poll).
    ``tags``: only these tags; empty for all. Replies with at least one message if there is one, whatever
    ``bytes_max`` says."""

    code: ClassVar[int] = 41
    reply: ClassVar[type[Reply]] = Pulled
    queue: str
    offset: int
    bytes_max: int = 256 * 1024
    count_max: int = 1024
    wait_s: float = 0.0
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundsReply(Reply):
    bounds: tuple[Bounds, ...]


@dataclass(frozen=True, slots=True)
class QueryBounds(Request):
    """Bounds of several queues, in the order asked; an unknown queue is ``QueueNotFound``."""

    code: ClassVar[int] = 42
    reply: ClassVar[type[Reply]] = BoundsReply
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OffsetReply(Reply):
    offset: int


@dataclass(frozen=True, slots=True)
class SeekTime(Request):
    """The first offset of a queue whose store time is at or after ``stored_ms``; the end if there is none."""

    code: ClassVar[int] = 43
    reply: ClassVar[type[Reply]] = OffsetReply
    queue: str
    stored_ms: int


@dataclass(frozen=True, slots=True)
class FindByKey(Request):
    """Messages of a topic by key or unique id, newest first: replies with ``count`` entries and frames as a pull
    does."""

    code: ClassVar[int] = 44
    reply: ClassVar[type[Reply]] = Pulled
    topic: str
    key: str
    since_ms: int = 0
    until_ms: int = 1 << 62
    count_max: int = 64


# -- broker: light queues and retained messages (60-69)


class OpenedFilter(NamedTuple):
    """A filter's light queue, and the offset and log position at which it begins to fill for this caller."""

    filter: str
    queue: str
    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class OpenedFilters(Reply):
    opened: tuple[OpenedFilter, ...]


@dataclass(frozen=True, slots=True)
class OpenFilters(Request):
    """Opens the light queues of MQTT filters for an owner (a gateway); opening again is fine. Every message appended
    after the reply's position is in the queue. A filter closes when no owner holds it any more."""

    code: ClassVar[int] = 60
    reply: ClassVar[type[Reply]] = OpenedFilters
    owner: str
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CloseFilters(Request):
    code: ClassVar[int] = 61
    reply: ClassVar[type[Reply]] = Done
    owner: str
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeepFilters(Request):
    """An owner lives: its filters stay open for another ``lease_s`` seconds."""

    code: ClassVar[int] = 62
    reply: ClassVar[type[Reply]] = Done
    owner: str
    lease_s: float


@dataclass(frozen=True, slots=True)
class RetainedPage(Reply):
    """``count`` retained messages as in ``Pulled`` (offsets are 0); ``after`` continues, empty at the end."""

    count: int
    after: str
    body: Bytes


@dataclass(frozen=True, slots=True)
class FetchRetained(Request):
    """Retained messages whose topic name matches ``filter``, in order of their names, those after ``after``."""

    code: ClassVar[int] = 63
    reply: ClassVar[type[Reply]] = RetainedPage
    filter: str
    after: str = ""
    count_max: int = 256


# -- broker: consumer groups (70-89)


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


# -- broker: figures (90-99)


@dataclass(frozen=True, slots=True)
class BrokerFigures(Reply):
    """Counters since start and gauges, by metric name (docs/guide/operator.md lists them)."""

    names: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ReadFigures(Request):
    code: ClassVar[int] = 90
    reply: ClassVar[type[Reply]] = BrokerFigures


# -- broker: MQTT sessions (100-119)

CONNECTED: Final = 0
GONE: Final = 1
RELEASED: Final = 2
NEVER_ENDS: Final = 0xFFFF_FFFF
"""An expiry interval that never passes."""


@dataclass(frozen=True, slots=True)
class OpenedSession(Reply):
    """A session has a new owner and a new epoch. Of a session that was there before: what was saved, and in
    ``state`` whether its client was connected, with nobody left to say how it went. ``present``: it goes on; else it
    is new, ``incarnation`` is its epoch, and what is told of the old one (``ended``: its incarnation) has ended.
    ``epoch`` 0: the owner was called upon, now ask with ``force``."""

    epoch: int
    incarnation: int
    present: bool
    state: int = RELEASED
    ended: int = 0
    will: bytes = b""
    terms: bytes = b""
    flow: bytes = b""
    expiry_s: int = 0


@dataclass(frozen=True, slots=True)
class OpenSession(Request):
    """Takes an MQTT session over, or makes it; whoever had it is fenced. With another living owner that one is first
    called upon to save and release it; after a short while it is taken all the same. ``claim``: takes it as it is, and
    only if its owner is dead and it has something to be done, else ``Fenced``. Another
    user's is ``Fenced`` too."""

    code: ClassVar[int] = 100
    reply: ClassVar[type[Reply]] = OpenedSession
    owner: str
    client: str
    clean: bool
    expiry_s: int
    will: bytes
    claim: bool = False
    force: bool = False
    user: str = ""


@dataclass(frozen=True, slots=True)
class SavedSessions(Reply):
    """Which of the sessions, by their places, are not the caller's any more; nothing of these was saved."""

    fenced: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SaveSessions(Request):
    """Keeps the state of sessions; answered when it is durable."""

    code: ClassVar[int] = 101
    reply: ClassVar[type[Reply]] = SavedSessions
    owner: str
    saves: tuple[SessionSave, ...]


@dataclass(frozen=True, slots=True)
class EndSession(Request):
    """A session is over; nothing happens where the epoch is not its own any more."""

    code: ClassVar[int] = 102
    reply: ClassVar[type[Reply]] = Done
    client: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SessionDuties(Reply):
    """Sessions of dead owners with something left to be done, to be opened with ``claim``."""

    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeepSessions(Request):
    """An owner lives for another ``lease_s`` seconds. ``fresh``: it has just begun, and what was its own before is
    not any more."""

    code: ClassVar[int] = 103
    reply: ClassVar[type[Reply]] = SessionDuties
    owner: str
    lease_s: float
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class SessionCalls(Reply):
    calls: tuple[SessionCall, ...]


@dataclass(frozen=True, slots=True)
class WatchSessions(Request):
    """Waits up to ``wait_s`` for others to ask for sessions of this owner."""

    code: ClassVar[int] = 104
    reply: ClassVar[type[Reply]] = SessionCalls
    owner: str
    wait_s: float


@dataclass(frozen=True, slots=True)
class Exchanges(Reply):
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FetchExchanges(Request):
    """The packet ids under which this broker has stored a session's QoS 2 messages and that are not released. From now
    on such messages of earlier epochs, from a gateway that had the session before, are refused (``Fenced``)."""

    code: ClassVar[int] = 105
    reply: ClassVar[type[Reply]] = Exchanges
    client: str
    incarnation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ReleaseExchanges(Request):
    """The ids may stand for other messages from now on; none: all ids of the session. Answered when that is
    durable."""

    code: ClassVar[int] = 106
    reply: ClassVar[type[Reply]] = Done
    client: str
    incarnation: int
    ids: tuple[int, ...]


# -- broker: shared subscriptions (120-129)


@dataclass(frozen=True, slots=True)
class TakeShared(Request):
    """Leases messages of a shared subscription to a taker: those that were given back first. Where there is none it
    waits up to ``wait_s``. The tag of an entry is the hash of the message's key if the share is ordered, else 0.
    ``resumes``: of what was leased to the taker it still has ``held``, nothing else; ``count_max`` may then be 0."""

    code: ClassVar[int] = 120
    reply: ClassVar[type[Reply]] = Pulled
    share: str
    taker: str
    count_max: int
    wait_s: float = 0.0
    resumes: bool = False
    held: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SettleShared(Request):
    """What became of messages: ``settled`` need not be given to anybody any more (answered when that is durable), those
    ``returned`` are for others. Renews the taker's lease; with an empty ``share`` it does nothing else."""

    code: ClassVar[int] = 121
    reply: ClassVar[type[Reply]] = Done
    share: str
    taker: str
    settled: tuple[int, ...] = ()
    returned: tuple[int, ...] = ()


def _defined(base: type) -> tuple[Any, ...]:
    return tuple(v for v in globals().values() if isinstance(v, type) and issubclass(v, base) and v is not base)


REPLIES: Final[tuple[type[Reply], ...]] = _defined(Reply)
REQUESTS: Final[dict[int, type[Request]]] = {cls.code: cls for cls in _defined(Request)}
assert len(REQUESTS) == len(_defined(Request)), "two requests share a code"

Result = Reply | PenstockError
"""What becomes of a request: its reply, or the error that stands for it."""
