"""Topics of a broker and the bounds of their queues. Codes 30 to 39."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from penstock.protocol.requests.request import Done, Reply, Request, value

ACCESSES: Final = ("rw", "r", "w", "none")
"""The permission of clients for a topic's queues: read, write, both, or none for now."""
UNCHANGED: Final = -1


class Bounds(NamedTuple):
    """The bounds of a queue: readable offsets are ``min <= offset < end``; ``end`` counts messages that have reached
    the level. ``first``: nothing before it comes back; it is not 0 of a topic that was deleted and made again, was
    purged, or has a retention of its own."""

    queue: str
    min: int
    end: int
    first: int = 0


class TopicInfo(NamedTuple):
    """Configuration of a topic.

    Attributes:
        queues: how many it has, those that are on their way out included.
        level: ``cache``, ``disk`` or ``quorum``.
        retention_s: seconds after which messages are removed; 0: the broker's retention applies.
        access: one of ``ACCESSES``.
        draining: number of queues, the last ones, that take no more messages and go when all groups have read them.
        trace: one message in this number is traced; 0: none.
    """

    topic: str
    queues: int
    level: str
    retention_s: int = 0
    access: str = "rw"
    draining: int = 0
    trace: int = 0

    @property
    def writing(self) -> int:
        """The number of queues that messages are written to."""
        return self.queues - self.draining


@value
class TopicDetail(Reply):
    """``log_id``: the log in which the bounds are; empty where the broker does not tell. ``retained``: number of its
    retained messages. ``is_copy``: from a copy of the log that does not lead, whose queues may end earlier."""

    topic: str
    queues: int
    level: str
    bounds: tuple[Bounds, ...]
    log_id: str = ""
    retention_s: int = 0
    access: str = "rw"
    draining: int = 0
    trace: int = 0
    retained: int = 0
    is_copy: bool = False


@value
class CreateTopic(Request):
    """Creates a topic; doing it again with the same configuration is fine. ``queues`` or ``level`` 0/"" take the
    default."""

    code: ClassVar[int] = 30
    reply: ClassVar[type[Reply]] = TopicDetail
    topic: str
    queues: int = 0
    level: str = ""
    retention_s: int = UNCHANGED
    access: str = ""
    trace: int = UNCHANGED


@value
class ChangeTopic(Request):
    """Changes the configuration of a topic: 0, ``UNCHANGED`` or an empty text leaves it as it is. ``TopicNotFound``,
    ``InvalidRequest``. With fewer queues the last ones take no more messages at once, and go when every group that
    reads the topic has read them; with more the new ones are written to at once, so that keys change their queues."""

    code: ClassVar[int] = 34
    reply: ClassVar[type[Reply]] = TopicDetail
    topic: str
    queues: int = 0
    level: str = ""
    retention_s: int = UNCHANGED
    access: str = ""
    trace: int = UNCHANGED


@value
class PurgeTopic(Request):
    """Removes all messages of a topic's queues; answered with the topic as it was. Offsets go on. Messages that wait
    for MQTT sessions stay, and retained ones unless ``retained``. ``TopicNotFound``, ``InvalidTopic`` for one of the
    system's."""

    code: ClassVar[int] = 35
    reply: ClassVar[type[Reply]] = TopicDetail
    topic: str
    retained: bool = False


@value
class AllowBroker(Request):
    """Says whether clients may read and write topics of this broker, until it is said otherwise: for maintenance. What
    it has promised already (delayed messages, retries, the queues of MQTT filters) goes on."""

    code: ClassVar[int] = 36
    reply: ClassVar[type[Reply]] = Done
    read: bool
    write: bool


@value
class BrokerAllows(Reply):
    """The permission of clients to read and write topics of a broker."""

    read: bool
    write: bool


@value
class QueryAllowed(Request):
    """A question for what a broker allows."""

    code: ClassVar[int] = 37
    reply: ClassVar[type[Reply]] = BrokerAllows
    is_repeatable: ClassVar[bool] = True


@value
class DescribeTopic(Request):
    """Configuration and bounds of a topic. With ``create``, policy may create it; ``is_anonymous``: for a client
    without a user name, for which not all topics of the limit are there. With ``gone``, queues that were deleted are
    there too, empty and where they ended, as far as that is known; a topic that is gone has 0 queues."""

    code: ClassVar[int] = 31
    reply: ClassVar[type[Reply]] = TopicDetail
    topic: str
    create: bool = False
    is_anonymous: bool = False
    gone: bool = False


@value
class DeleteTopic(Request):
    """Deletes a topic with all its messages, retained values and committed offsets; answered with the former topic.
    ``TopicNotFound`` where there is none, ``InvalidTopic`` for one of the system's. One that is made again begins its
    offsets where this one ended."""

    code: ClassVar[int] = 33
    reply: ClassVar[type[Reply]] = TopicDetail
    topic: str


class TopicCount(NamedTuple):
    """The contents of a topic in numbers: the sum of its queues' ends, which grows by one with each message that is
    stored, its number of messages, and about how many bytes they have, where that was asked for."""

    topic: str
    stored: int
    messages: int
    size: int = 0


@value
class TopicCounts(Reply):
    """``after`` continues; it is empty at the end."""

    topics: tuple[TopicCount, ...]
    after: str


@value
class CountTopics(Request):
    """Asks for the contents of topics in numbers, in order of their names, those after ``after`` with ``contains`` in
    their names. ``sizes``: in bytes too, which takes a look at each queue's newest entries."""

    code: ClassVar[int] = 38
    reply: ClassVar[type[Reply]] = TopicCounts
    is_repeatable: ClassVar[bool] = True
    after: str = ""
    count_max: int = 500
    contains: str = ""
    sizes: bool = False


@value
class TopicList(Reply):
    """Configurations of topics."""

    topics: tuple[TopicInfo, ...]


@value
class ListTopics(Request):
    """The broker's topics, sorted, without the system's own."""

    code: ClassVar[int] = 32
    reply: ClassVar[type[Reply]] = TopicList
    is_repeatable: ClassVar[bool] = True
