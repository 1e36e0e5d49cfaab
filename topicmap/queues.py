"""From MQTT names to broker topics and queues, and the names of queues.

Distinct first levels give distinct topics. A topic has 1 to 255 characters of ``A-Z a-z 0-9 - _ % |``; any other byte
of a level is written ``%XX``. Where that is too long, the topic is the beginning of the level, ``|`` and the SHA-256 of
the level; each message keeps its whole name. A shorter level can be read back from its topic.

Queues have names: ``telemetry:0`` is queue 0 of a topic; the *light queue* of a filter begins with ``~``, which no
topic does: ``~filter:a/+``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from topicmap.names import (
    EVENTS_LEVEL,
    NAME_BYTES_MAX,
    SYS_LEVEL,
    InvalidName,
    check_filter,
    covers,
    is_level,
    matches,
    overlaps,
    plain_filter,
    quoted,
)

TOPIC_BYTES_MAX: Final = 255
SYSTEM_PREFIX: Final = "%sys%"
"""Topics of the broker's own records; no level maps to them, because a ``%`` in a level is written ``%25``."""

DEAD_LETTER_PREFIX: Final = "%DLQ%"
RETRY_PREFIX: Final = "%RETRY%"
"""RocketMQ's prefixes. No level maps to a topic with them, for the same reason."""
REDRIVE_PREFIX: Final = "redrive "
"""Begins the name of the group whose offset says which dead letters of another group were sent again."""

POP_PREFIX: Final = "$pop/"
"""Names of what groups pop begin so; no MQTT share does."""

TRACE_TOPIC: Final = "%TRACE%"
"""The topic in which brokers store the traces of messages."""

AUDIT_TOPIC: Final = "%AUDIT%"
"""The topic of the audit log: who did what, from where, and whether it was allowed."""

_TOPIC: Final = re.compile(r"[A-Za-z0-9%|_-]+")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]+")
_ESCAPE: Final = re.compile(r"%([0-9A-F]{2})")
_EMPTY_LEVEL: Final = "%"
_CUT: Final = "|"
"""Between the beginning of a long level and its digest; no other level's topic holds it."""
_CUT_TOPIC: Final = re.compile(r"[A-Za-z0-9%_-]+\|[0-9a-f]{64}")
_DIGEST_BYTES: Final = 1 + 64
_BEGINNING_BYTES_MAX: Final = TOPIC_BYTES_MAX - _DIGEST_BYTES


class Placement(NamedTuple):
    """The place of a message: its broker topic, and the key that chooses the queue."""

    topic: str
    key: str


class Rule(NamedTuple):
    """Names that match ``pattern`` go to ``topic``; the key is level ``key_level`` (from 0), or the default one if
    None."""

    pattern: str
    topic: str
    key_level: int | None = None


class TopicQueue(NamedTuple):
    """A queue of a topic."""

    topic: str
    queue_id: int


class TopicMap:
    """Places MQTT names on topics: the first rule that matches, else the first level.

    Raises ``InvalidName`` for a rule whose pattern or topic is not legal.
    """

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        for rule in rules:
            check_filter(rule.pattern)
            check_topic(rule.topic)
        self._rules = tuple(rules)

    def place(self, name: str, client_id: str = "") -> Placement:
        """Topic and key of a legal name. Without a rule's key, all messages of one client keep their order."""
        for rule in self._rules:
            if matches(rule.pattern, name):
                return Placement(rule.topic, _level_of(name, rule.key_level) or client_id or name)
        return Placement(encode_level(name.partition("/")[0]), client_id or name)

    def topic_of(self, filter: str) -> str | None:
        """The one topic that holds all names which a legal filter matches; ``None`` where there is more than one.

        Raises ``InvalidName`` as ``place`` does.
        """
        for rule in self._rules:
            if covers(rule.pattern, filter):
                return rule.topic
            if overlaps(rule.pattern, filter):
                return None
        first = filter.partition("/")[0]
        return None if first in ("+", "#") else encode_level(first)


def _level_of(name: str, level: int | None) -> str:
    levels = name.split("/")
    return levels[level] if level is not None and 0 <= level < len(levels) else ""


def encode_level(level: str) -> str:
    """The topic of a first level: the level with odd bytes escaped, or, where that has more than 255 bytes, the
    beginning of it, a ``|`` and the SHA-256 of the level. Raises ``InvalidName`` where it is not Unicode."""
    if not level:
        return _EMPTY_LEVEL
    if len(level) <= TOPIC_BYTES_MAX:
        topic = level if _PLAIN.fullmatch(level) else _ODD.sub(_escape, level)
        if len(topic) <= TOPIC_BYTES_MAX:
            return topic
    return f"{_beginning(level)}{_CUT}{sha256(_utf8(level)).hexdigest()}"


def dead_letter_topic(group: str) -> str:
    """The topic of a group's dead letters."""
    return _own_topic(DEAD_LETTER_PREFIX, group)


def retry_topic(group: str) -> str:
    """The topic of messages that a group is to try again."""
    return _own_topic(RETRY_PREFIX, group)


def is_own_topic(topic: str) -> bool:
    """Whether only brokers store messages in a topic."""
    return topic.startswith((DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX)) or topic in (TRACE_TOPIC, AUDIT_TOPIC)


def _own_topic(prefix: str, group: str) -> str:
    topic = prefix + encode_level(group)
    if len(topic) <= TOPIC_BYTES_MAX:
        return topic
    return f"{prefix}{_beginning(group)[: -len(RETRY_PREFIX)]}{_CUT}{sha256(_utf8(group)).hexdigest()}"


def _beginning(level: str) -> str:
    """Whole characters of a level's beginning, as many as stand before a digest."""
    begun = ""
    for character in level[:_BEGINNING_BYTES_MAX]:
        added = character if _PLAIN.fullmatch(character) else _ODD.sub(_escape, character)
        if len(begun) + len(added) > _BEGINNING_BYTES_MAX:
            break
        begun += added
    return begun


def _escape(found: re.Match[str]) -> str:
    return "".join([f"%{byte:02X}" for byte in _utf8(found[0])])


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidName("a topic name must not hold surrogates (MQTT-1.5.4-1)") from None


SYS_TOPIC: Final = encode_level(SYS_LEVEL)
"""The topic in which gateways tell of themselves."""
EVENTS_TOPIC: Final = encode_level(EVENTS_LEVEL)
"""The topic in which event bridges keep their configuration."""


def decode_level(topic: str) -> str:
    """The first level that ``encode_level`` made a topic of. Raises ``InvalidName`` for any other string, and for the
    topic of a long level: that has a digest only, and each of its messages the name."""
    if topic == _EMPTY_LEVEL:
        return ""
    level = _unescaped(topic)
    if not level or encode_level(level) != topic:
        raise InvalidName(f"{topic!r} is not the topic of a first level")
    return level


def readable(topic: str) -> str:
    """The first level of a topic for people: of a long level the beginning and an ellipsis. A topic that is none of a
    first level is shown as it is."""
    if _CUT_TOPIC.fullmatch(topic):
        begun = _unescaped(topic[:-_DIGEST_BYTES])
        return f"{begun}…" if begun else topic
    try:
        return decode_level(topic)
    except InvalidName:
        return topic


def _unescaped(topic: str) -> str:
    """The text that an escaped one stands for; empty if that is not UTF-8."""
    try:
        return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), topic).encode("latin-1").decode()
    except UnicodeError:
        return ""


def topic_named(name: str) -> str:
    """The topic that a name of a user's means: the name itself if it has only characters of a topic, else the topic of
    that first level of MQTT names. Raises ``InvalidName`` for what is neither."""
    if len(name) <= TOPIC_BYTES_MAX and _TOPIC.fullmatch(name):
        return name
    if not is_level(name):
        raise InvalidName(
            f"a topic's name is one level of an MQTT name (1 to {NAME_BYTES_MAX} bytes of UTF-8, no / + #, no control "
            f"characters), not {quoted(name)}"
        )
    return encode_level(name)


def check_topic(topic: str) -> None:
    """Raises ``InvalidName`` unless users may have a topic of this name."""
    if not _TOPIC.fullmatch(topic) or len(topic) > TOPIC_BYTES_MAX:
        raise InvalidName(f"a topic has 1 to {TOPIC_BYTES_MAX} characters of A-Z a-z 0-9 % | - _, not {topic!r}")
    if is_system(topic):
        raise InvalidName(f"topics that begin with {SYSTEM_PREFIX} are the broker's own")


def is_system(topic: str) -> bool:
    """Whether a topic holds the broker's own records."""
    return topic.startswith(SYSTEM_PREFIX)


def topic_queue(topic: str, queue_id: int) -> str:
    """Name of a topic's queue."""
    return f"{topic}:{queue_id}"


def filter_queue(filter: str) -> str:
    """Name of the light queue of an MQTT filter."""
    return f"~filter:{filter}"


def pop_share(group: str, queue: str) -> str:
    """Under this name it is known what a group has popped of a topic's queue."""
    return f"{POP_PREFIX}{group}/{queue}"


def is_pop(share: str) -> bool:
    """Whether a name is that of what a group has popped."""
    return share.startswith(POP_PREFIX)


def share_group(share: str) -> str:
    """The group that pops under this name."""
    return share.removeprefix(POP_PREFIX).rpartition("/")[0]


def share_queue(share: str) -> str:
    """The queue that a shared subscription reads, or that is popped."""
    return share.rpartition("/")[2] if share.startswith(POP_PREFIX) else filter_queue(plain_filter(share))


def parse_topic_queue(key: str) -> TopicQueue:
    """The topic and number in the name of a topic's queue. Raises ``InvalidName``, also for a light queue."""
    topic, colon, number = key.rpartition(":")
    if not colon or not number.isascii() or not number.isdigit() or len(number) > 10 or str(int(number)) != number:
        raise InvalidName(f"{key!r} is not TOPIC:NUMBER")
    if not _TOPIC.fullmatch(topic):
        raise InvalidName(f"{topic!r} is no topic")
    return TopicQueue(topic, int(number))


def queue_for_key(key: str | bytes, queues: int) -> int:
    """The queue, of ``queues`` many, that all messages of a key go to. The same on every machine and in every
    version."""
    return zlib.crc32(key.encode() if isinstance(key, str) else key) % queues
