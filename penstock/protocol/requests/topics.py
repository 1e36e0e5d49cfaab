"""Topics of a broker and the bounds of their queues. Codes 30 to 39."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from penstock.protocol.requests.request import Reply, Request, value


class Bounds(NamedTuple):
    """Where a queue begins and ends: readable offsets are ``min <= offset < end``; ``end`` counts what has reached
    the level. ``first``: the first offset that it ever had; of a topic that was deleted and made again it is not 0."""

    queue: str
    min: int
    end: int
    first: int = 0


class TopicInfo(NamedTuple):
    """Configuration of a topic. ``level`` is ``cache`` or ``disk``."""

    topic: str
    queues: int
    level: str


@value
class TopicDetail(Reply):
    """``log_id``: the log in which the bounds are; empty where the broker does not tell."""

    topic: str
    queues: int
    level: str
    bounds: tuple[Bounds, ...]
    log_id: str = ""


@value
class CreateTopic(Request):
    """Creates a topic; doing it again with the same configuration is fine. ``queues`` or ``level`` 0/"" take the
    default."""

    code: ClassVar[int] = 30
    reply: ClassVar[type[Reply]] = TopicDetail
    topic: str
    queues: int = 0
    level: str = ""


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
    """Deletes a topic with all its messages, retained values and committed offsets; answered with what it was.
    ``TopicNotFound`` where there is none, ``InvalidTopic`` for one of the system's. One that is made again begins its
    offsets where this one ended."""

    code: ClassVar[int] = 33
    reply: ClassVar[type[Reply]] = TopicDetail
    topic: str


@value
class TopicList(Reply):
    topics: tuple[TopicInfo, ...]


@value
class ListTopics(Request):
    """The broker's topics, sorted, without the system's own."""

    code: ClassVar[int] = 32
    reply: ClassVar[type[Reply]] = TopicList
    is_repeatable: ClassVar[bool] = True
