"""The option ``where``: selects a query's queues, offsets and messages before any of them travels.

Conditions on topic, queue and broker choose queues; those on offset and store time choose a stretch of each queue;
those on names, tags, keys, ids and properties become a selector, with which the broker sends only what matches. The
selection is exact: SQL would select the same. Decision 65 says why Spark's own pushing is not used. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.errors import InvalidConfig, InvalidFilter
from penstock.protocol.message import CLIENT_ID, KEYS, KEYS_BASE64, MQTT_TOPIC, TAGS, UNIQUE_KEY, stored_key
from penstock.protocol.selectors.compiling import selector_of
from penstock.protocol.selectors.like import LikePattern
from penstock.spark.conditions import Condition, Literal, read_conditions
from penstock.spark.offsets import QueueKey

_NUMBERS: Final = ("queue", "partition")
_NAMES: Final = ("topic", "broker")
_PROPERTIES: Final = {"mqtt_topic": MQTT_TOPIC, "tags": TAGS, "client_id": CLIENT_ID, "msg_id": UNIQUE_KEY}
_KNOWN: Final = (*_NAMES, *_NUMBERS, "offset", "timestamp", "key", *_PROPERTIES, "properties['NAME']")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ESCAPE: Final = "\\"

Stretch = tuple[int, int]
"""From the first to behind the last, of offsets or of milliseconds."""
END: Final = 1 << 62
"""Behind all offsets and times."""
_ALL: Final[Stretch] = (0, END)


@dataclass(frozen=True, slots=True)
class Where:
    """The selected part of a subscription.

    Attributes:
        text: the text of the option.
        of_queues: conditions on the queues.
        offsets, times: the stretches of each queue; ``times`` in milliseconds of the store time.
        of_messages: conditions on messages, for the broker.
    """

    text: str = ""
    of_queues: tuple[Condition, ...] = ()
    offsets: Stretch = _ALL
    times: Stretch = _ALL
    of_messages: tuple[Condition, ...] = ()

    @property
    def has_ends(self) -> bool:
        """Whether it says where reading begins or ends."""
        return (self.offsets, self.times) != (_ALL, _ALL)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of all messages to read, where a condition names them."""
        for one in self.of_messages:
            if one.column == "tags" and one.word in ("=", "IN") and not one.negated:
                return tuple(map(str, one.values))
        return ()

    def reads(self, key: QueueKey) -> bool:
        """Whether a queue is read."""
        values: dict[str, str | int] = {
            "topic": key.topic,
            "broker": key.broker,
            "queue": key.queue,
            "partition": key.queue,
        }
        return all(holds(one, values[one.column]) for one in self.of_queues)

    def between(self, start: int, end: int) -> Stretch:
        """The selected part of a queue's stretch of offsets, empty if the queue ends before it."""
        first = max(start, min(end, self.offsets[0]))
        return first, max(first, min(end, self.offsets[1]))

    def selector(self, topic: str, given: str = "") -> str:
        """The selector of a topic's messages, together with one that was ``given``."""
        terms = [_selector(one, topic) for one in self.of_messages]
        return " AND ".join([f"({given})", *terms]) if given and terms else given or " AND ".join(terms)


ALL: Final = Where()


def where_of(text: str) -> Where:
    """The selection of a text. Raises ``InvalidConfig`` for a condition that the source and its brokers cannot judge
    exactly."""
    where = Where(text)
    for one in read_conditions(text):
        if one.column in (*_NAMES, *_NUMBERS):
            _check(one, int if one.column in _NUMBERS else str)
            where = replace(where, of_queues=(*where.of_queues, one))
        elif one.column == "offset":
            _check(one, int)
            where = replace(where, offsets=_within(where.offsets, _stretch(one, one.values)))
        elif one.column == "timestamp":
            where = replace(where, times=_within(where.times, _times(one)))
        elif one.column in ("key", *_PROPERTIES) or one.field:
            where = replace(where, of_messages=(*where.of_messages, one))
        else:
            hint = f"df.where() takes other columns; the broker knows {', '.join(_KNOWN)}"
            raise InvalidConfig(f"where: {one.name} is no column that the broker knows", hint=hint)
    try:
        if where.of_messages:
            selector_of(where.selector(""))
    except InvalidFilter as error:
        raise InvalidConfig(f"where: {error.message}") from None
    return where


def holds(one: Condition, value: str | int) -> bool:
    """Whether a condition is true of a value."""
    if one.word == "IS NULL":
        return one.negated
    if one.word == "IN":
        return (value in one.values) != one.negated
    other = one.values[0]
    if one.word == "LIKE":
        return _like(str(other)).matches(str(value).encode()) != one.negated
    if one.word in ("=", "<>"):
        return (value == other) == (one.word == "=")
    assert isinstance(value, int)
    assert isinstance(other, int)
    first, last = _stretch(one, (other,))
    return first <= value < last


# ---------------------------------------------------------------- stretches


def _check(one: Condition, kind: type) -> None:
    if not all(isinstance(value, kind) for value in one.values) or (kind is int and one.word in ("LIKE",)):
        raise InvalidConfig(f"where: {one.name} is compared with {'numbers' if kind is int else 'strings'}")
    if kind is str and one.word in ("<", "<=", ">", ">="):
        raise InvalidConfig(f"where: {one.name} is compared by = <> IN LIKE")


def _within(one: Stretch, other: Stretch) -> Stretch:
    first, last = max(one[0], other[0]), min(one[1], other[1])
    return (first, last) if first < last else (0, 0)


def _stretch(one: Condition, values: Iterable[Literal]) -> Stretch:
    """The whole numbers for which a comparison is true."""
    number = next(iter(values), None)
    if not isinstance(number, int) or one.word not in ("=", "<", "<=", ">", ">="):
        raise InvalidConfig(f"where: {one.name} is compared by = < <= > >= BETWEEN")
    below, above = one.word[0] != ">", one.word[0] != "<"
    equal = "=" in one.word
    return (number + (not equal) if above else 0, number + equal if below else END)


def _times(one: Condition) -> Stretch:
    """The stretch of store times: they have whole milliseconds, the literals microseconds."""
    text = one.values[0] if one.values else ""
    try:
        at = datetime.fromisoformat(str(text)) if isinstance(text, str) else None
    except ValueError:
        at = None
    if at is None:
        hint = "write TIMESTAMP '2026-11-28 10:00:00'; without a zone it is UTC"
        raise InvalidConfig(f"where: {text!r} is no time", hint=hint)
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
    whole, rest = divmod(since, timedelta(milliseconds=1))
    if not rest:
        return _stretch(one, (whole,))
    if one.word == "=":
        return 0, 0
    return _stretch(one._replace(word=one.word[0] + ("" if one.word[0] == ">" else "=")), (whole,))


# ---------------------------------------------------------------- selectors


def _selector(one: Condition, topic: str) -> str:
    """A condition in a selector's words, for messages of a topic."""
    if one.column == "key":
        return _of_keys(one)
    if not all(isinstance(value, str) for value in one.values) or one.word not in ("=", "<>", "IN", "LIKE", "IS NULL"):
        raise InvalidConfig(f"where: {one.name} is compared with strings, by = <> IN LIKE and IS NULL")
    name = one.field or _PROPERTIES[one.column]
    text = _words(one, name)
    if one.column == "mqtt_topic" and one.word == "IS NULL":
        return "TRUE" if one.negated else "FALSE"
    if one.column == "mqtt_topic" and (not topic or holds(one, topic)):  # without the property a topic is the name
        return f"({text} OR {name} IS NULL)"
    return text


def _words(one: Condition, name: str) -> str:
    word = "NOT " if one.negated else ""
    if one.word == "IS NULL":
        return f"{name} IS {word}NULL"
    values = [_quoted(str(value)) for value in one.values]
    if one.word == "IN":
        return f"{name} {word}IN ({', '.join(values)})"
    if one.word == "LIKE":
        escape = f" ESCAPE '{_ESCAPE}'" if _ESCAPE in values[0] else ""
        return f"{name} {word}LIKE {values[0]}{escape}"
    return f"{name} {one.word} {values[0]}"


def _of_keys(one: Condition) -> str:
    """A key is text, or base64 in a property of its own."""
    is_other = one.negated or one.word == "<>"
    if one.word == "IS NULL":
        join, word = ("OR", "IS NOT NULL") if one.negated else ("AND", "IS NULL")
        return f"({KEYS} {word} {join} {KEYS_BASE64} {word})"
    if one.word not in ("=", "<>", "IN") or not all(isinstance(value, str | bytes) for value in one.values):
        raise InvalidConfig("where: key is compared by = <> IN with strings or bytes, as X'6B31'")
    placed = [stored_key(value) for value in one.values if isinstance(value, str | bytes)]
    terms = []
    for name in (KEYS, KEYS_BASE64):
        values = ", ".join([_quoted(text) for its, text in placed if its == name])
        if values:
            terms.append(f"{name} {'NOT ' * is_other}IN ({values})")
        elif is_other:
            terms.append(f"{name} IS NOT NULL")
    return f"({' OR '.join(terms)})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _like(pattern: str) -> LikePattern:
    try:
        return LikePattern(pattern, _ESCAPE if _ESCAPE in pattern else "")
    except ValueError as error:
        raise InvalidConfig(f"where: {error}") from None
