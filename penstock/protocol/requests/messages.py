"""Messages of a broker: appended, pulled, found. Codes 40 to 59."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from penstock.protocol.requests.request import Bytes, Done, Reply, Request, value
from penstock.protocol.requests.topics import Bounds

PLACED_BYTES: Final = 20
"""About what a ``Placed`` takes in a reply."""
NAMES_MAX: Final = 64
"""MQTT filters of one pull."""
AUDITED_MAX: Final = 5_000
"""Maximum number of entries of the audit log in one request."""
SPARK: Final = "Spark"
"""The reader of a Spark query without a group."""
SPARK_GROUP: Final = f"{SPARK}, group "
"""The beginning of the reader of a Spark query with a group, whose name follows."""


class Placed(NamedTuple):
    """The place of an appended record; ``offset`` is in its topic queue."""

    queue_id: int
    offset: int
    position: int


class PlacedRun(NamedTuple):
    """The places of messages of an AppendRuns, from index ``at`` in the batch on, up to the next row or refusal: one
    behind the other in one topic queue. ``offset``, ``position``: of the first; -1 for messages that were stored before
    and of which it is not known any more."""

    at: int
    queue_id: int
    offset: int
    position: int


class Refused(NamedTuple):
    """One record of an Append, or message of an AppendRuns, that was not stored, by its place in the batch."""

    at: int
    code: int
    message: str


@value
class Appended(Reply):
    """``level`` was reached by every record that is not ``refused``. ``placed`` is empty unless ``detail`` was asked
    for; else it has one entry per record of an ``Append``, in order (zeros for a refused one). ``runs`` says the same
    of an ``AppendRuns``, in the order of ``at``."""

    level: str
    placed: tuple[Placed, ...] = ()
    refused: tuple[Refused, ...] = ()
    runs: tuple[PlacedRun, ...] = ()


@value
class Append(Request):
    """Stores records. ``body`` is whole records end to end, ``count`` of them (``message.encode_record``). Each is
    stored or refused on its own, in order, also where they do not fit one segment; the reply comes when the topic's
    level is reached. ``detail`` asks for ``placed``."""

    code: ClassVar[int] = 40
    reply: ClassVar[type[Reply]] = Appended
    count: int
    detail: bool
    body: Bytes

    def reply_bytes(self) -> int:
        return PLACED_BYTES * self.count if self.detail else 0


@value
class AppendRuns(Request):
    """Stores messages of devices and producers. ``body`` is runs end to end (``runs.encode_runs``) with ``count``
    messages in all, ``checksum`` its CRC-32C. Each message is stored or refused on its own, as for ``Append``; which
    queue it goes to is decided by the broker.
    ``gateway_epoch``: the gateway's (``KeepSessions``); all is ``Fenced`` where that is over.
    ``attempt``: the gateway's own number, which grows once it has heard of a ``StorageFull``. A batch with the number
    of one that was refused so, or a lower one, is refused too: it was under way, and earlier messages come again first.
    Producers have neither, and ask with ``detail`` for ``runs``."""

    code: ClassVar[int] = 45
    reply: ClassVar[type[Reply]] = Appended
    count: int
    checksum: int
    body: Bytes
    gateway_epoch: str = ""
    attempt: int = 0
    detail: bool = False

    def reply_bytes(self) -> int:
        return PLACED_BYTES * self.count if self.detail else 0


@value
class Pulled(Reply):
    """``count`` messages. ``body``: ``count`` entries (``message.ENTRY``), then their log frames, untouched, in that
    order. ``next`` is the offset to pull next: with tags or a filter it may pass entries that did not match.
    ``min``/``end``: the bounds. ``checksum``: the CRC-32C of the body; 0 where the broker did not make one, of few
    messages."""

    count: int
    next: int
    min: int
    end: int
    body: Bytes
    checksum: int = 0


@value
class Pull(Request):
    """Messages of a queue from ``offset`` on. Where there is none yet it waits up to ``wait_s`` for one (long poll).
    ``tags``: only these tags; empty for all. ``filter``: only what this selector wants; empty for all. ``names``: only
    messages whose MQTT name one of these MQTT filters matches; empty for all. Replies with at least one message if
    there is one, whatever ``bytes_max`` says; with tags, a filter or names it may look at a part only and say with
    ``next`` where to go on. ``log_id``: the log in which ``offset`` is; another log answers ``LogReplaced``.
    ``reader``: for whom, as a message trace tells it.
    """

    code: ClassVar[int] = 41
    reply: ClassVar[type[Reply]] = Pulled
    is_repeatable: ClassVar[bool] = True
    queue: str
    offset: int
    bytes_max: int = 256 * 1024
    count_max: int = 1024
    wait_s: float = 0.0
    tags: tuple[str, ...] = ()
    log_id: str = ""
    filter: str = ""
    reader: str = ""
    names: tuple[str, ...] = ()


@value
class ReadAt(Request):
    """The message whose frame is at a log position, however old its queue is. ``OffsetOutOfRange`` where there is none,
    or none any more."""

    code: ClassVar[int] = 46
    reply: ClassVar[type[Reply]] = Pulled
    is_repeatable: ClassVar[bool] = True
    position: int


class TopicRead(NamedTuple):
    """A topic that was read without a group, ``ago_s`` seconds ago."""

    topic: str
    ago_s: float


@value
class TopicsRead(Reply):
    """Topics that were read without a group."""

    topics: tuple[TopicRead, ...]


@value
class ListReads(Request):
    """The topics that were read without a group in the last ten minutes, by readers, Spark or devices' histories. How
    far those have read a broker does not know."""

    code: ClassVar[int] = 47
    reply: ClassVar[type[Reply]] = TopicsRead
    is_repeatable: ClassVar[bool] = True


class DeviceAck(NamedTuple):
    """A message of a topic's queue, at this log position, that an MQTT client has acknowledged."""

    queue: str
    offset: int
    position: int
    client: str


@value
class TellAcknowledged(Request):
    """Messages of traced topics that clients of a gateway have acknowledged. Each broker traces its own messages and
    ignores the other rows."""

    code: ClassVar[int] = 48
    reply: ClassVar[type[Reply]] = Done
    gateway: str
    rows: tuple[DeviceAck, ...]


class AuditEntry(NamedTuple):
    """A login or request, and the decision about it.

    Attributes:
        at_ms: wall-clock milliseconds since 1970.
        user: the name that was proved; of a refused login the one that was claimed, if there is such a user. Empty for
            none.
        how: the kind of proof or claim.
        address: the peer's address.
        act: the request's name, or ``Login``.
        name: the topic, group, client id or login mechanism that it is about; empty for the cluster.
        allowed: whether it was allowed.
        why: the cause of a refusal, for operators.
        client: the client id of a device; empty for other clients.
        times: how often it happened within about a second.
    """

    at_ms: int
    user: str
    how: str
    address: str
    act: str
    name: str
    allowed: bool
    why: str = ""
    client: str = ""
    times: int = 1


@value
class TellAudited(Request):
    """Entries of the audit log of a server, which the broker stores in the topic ``%AUDIT%``: at most
    ``AUDITED_MAX``."""

    code: ClassVar[int] = 49
    reply: ClassVar[type[Reply]] = Done
    server: str
    entries: tuple[AuditEntry, ...]


@value
class BoundsReply(Reply):
    """``log_id``: the log in which the bounds are; empty where the broker does not tell."""

    bounds: tuple[Bounds, ...]
    log_id: str = ""


@value
class QueryBounds(Request):
    """Bounds of several queues, in the order asked; an unknown queue is ``QueueNotFound``."""

    code: ClassVar[int] = 42
    reply: ClassVar[type[Reply]] = BoundsReply
    is_repeatable: ClassVar[bool] = True
    queues: tuple[str, ...]


@value
class OffsetReply(Reply):
    """An offset in a queue."""

    offset: int


@value
class SeekTime(Request):
    """The first offset of a queue whose store time is at or after ``stored_ms``; the end if there is none."""

    code: ClassVar[int] = 43
    reply: ClassVar[type[Reply]] = OffsetReply
    queue: str
    stored_ms: int


@value
class FindByKey(Request):
    """Messages of a topic by key or unique id, newest first: replies with ``count`` entries and frames as a pull
    does. A reply is the outcome of bounded work, so it may hold fewer than there are, or none: its ``next`` is the
    ``before`` with which to go on, 0 where nothing is left to look at.

    ``before``: only messages that are stored before this log position.
    """

    code: ClassVar[int] = 44
    reply: ClassVar[type[Reply]] = Pulled
    is_repeatable: ClassVar[bool] = True
    topic: str
    key: str
    since_ms: int = 0
    until_ms: int = 1 << 62
    count_max: int = 64
    before: int = 1 << 62
