"""Reads the values of options: text in, checked values out. Pure.

Each function takes the option's name, for its errors, and the text. Raises ``InvalidConfig``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from penstock.errors import InvalidConfig, InvalidFilter
from penstock.protocol.addresses import parse_servers
from penstock.protocol.requests.messages import NAMES_MAX
from penstock.protocol.selectors.compiling import selector_of
from penstock.protocol.topic_names import topic_of
from penstock.spark.columns import COLUMNS
from penstock.spark.offsets import EARLIEST, LATEST, LOGS, Logs
from penstock.spark.where import Where, where_of
from topicmap.names import InvalidName, check_filter, is_share, quoted

Given = Mapping[str, Mapping[str, int]]


class Bound(NamedTuple):
    """A beginning or an end of reading: offsets or store times (milliseconds), the same for all queues or one for each.
    ``logs``: the log of each broker's offsets, as far as it is known."""

    by: Literal["offset", "time"]
    everywhere: int
    each: Given | None = None
    option: str = ""
    logs: Logs | None = None

    def is_only(self, offset: int) -> bool:
        """Whether it is this offset for all queues."""
        return self.by == "offset" and not self.each and self.everywhere == offset

    @property
    def of_the_moment(self) -> bool:
        """Whether it would be another place if it were looked for again later (but for retention)."""
        numbers = [number for queues in (self.each or {}).values() for number in queues.values()] or [self.everywhere]
        return self.by == "time" or LATEST in numbers


_DURATION: Final = re.compile(r"([0-9]+) *(ms|s|min|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_GROUP_BYTES_MAX: Final = 255


def read_count(name: str, text: str) -> int:
    """A number from 1 on."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise InvalidConfig(f"{name} is a number from 1 on, not {text!r}")
    return int(text)


def read_amount(name: str, text: str) -> int:
    """A number from 0 on."""
    if not text.strip().isdecimal():
        raise InvalidConfig(f"{name} is a number from 0 on, not {text!r}")
    return int(text)


def read_milliseconds(name: str, text: str) -> float:
    """Milliseconds, as seconds."""
    return read_amount(name, text) / 1000


def read_duration(name: str, text: str) -> float:
    """A time with its unit, in seconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise InvalidConfig(f"{name} is a time like 500ms, 30s, 15m, 2h or 1d, not {text!r}")
    return int(found[1]) * _SECONDS[found[2]]


def read_group(name: str, text: str) -> str:
    """The name of a consumer group."""
    if not 0 < len(text.encode("utf-8", "replace")) <= _GROUP_BYTES_MAX:
        raise InvalidConfig(f"{name} has 1 to {_GROUP_BYTES_MAX} bytes")
    return text


def read_flag(name: str, text: str) -> bool:
    """``true`` or ``false``."""
    if text.strip().lower() not in ("true", "false"):
        raise InvalidConfig(f"{name} is true or false, not {text!r}")
    return text.strip().lower() == "true"


def read_text(name: str, text: str) -> str:
    """Any text but an empty one."""
    if not text.strip():
        raise InvalidConfig(f"{name} is empty")
    return text.strip()


def read_names(name: str, text: str) -> tuple[str, ...]:
    """Names with commas between them, each once."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise InvalidConfig(f"{name} is empty")
    return found


def read_servers(name: str, text: str) -> tuple[str, ...]:
    """Addresses of name servers."""
    return parse_servers(text)


def read_pattern(name: str, text: str) -> str:
    """A regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidConfig(f"{name} is no regular expression: {error}") from None
    return text


def read_columns(name: str, text: str) -> tuple[str, ...]:
    """Columns of messages."""
    found = read_names(name, text)
    for column in found:
        if column not in COLUMNS:
            raise InvalidConfig(f"{name}: there is no column {column!r}", hint=f"there are {', '.join(COLUMNS)}")
    return found


def read_mqtt_filters(name: str, text: str) -> tuple[str, ...]:
    """MQTT filters with commas between them, or a JSON list of them."""
    found = read_json_list(name, text) if text.lstrip().startswith("[") else read_names(name, text)
    for one in found:
        if is_share(one):
            raise InvalidConfig(f"{name}: {one} is a share, and a query reads all of a filter", hint="leave $share out")
        try:
            check_filter(one)
        except InvalidName as error:
            raise InvalidConfig(f"{name}: {quoted(one)}: {error}") from None
    if len(found) > NAMES_MAX:
        raise InvalidConfig(f"{name} has {len(found)} filters; a query has at most {NAMES_MAX}")
    return found


def read_json_list(name: str, text: str) -> tuple[str, ...]:
    """A JSON list of strings."""
    value = _read_json(name, text)
    if not value or not all(isinstance(one, str) for one in value):
        raise InvalidConfig(f'{name} is a,b or JSON like ["a", "b"], not {text!r}')
    return tuple(dict.fromkeys(value))


def read_selector(name: str, text: str) -> str:
    """A selector over properties."""
    try:
        return selector_of(text).text
    except InvalidFilter as error:
        raise InvalidConfig(f"{name}: {error.message}", hint=error.hint) from None


def read_where(name: str, text: str) -> Where:
    """Conditions."""
    return where_of(text)


def read_topics(name: str, text: str) -> tuple[str, ...]:
    """Topics with commas between them."""
    return tuple(dict.fromkeys(map(topic_of, read_names(name, text))))


def read_one_of(*words: str) -> Callable[[str, str], str]:
    """The reader of an option that is one of these words."""

    def read(name: str, text: str) -> str:
        if text not in words:
            raise InvalidConfig(f"{name} is {' or '.join(words)}, not {text!r}")
        return text

    return read


def read_json_object(name: str, text: str) -> Any:
    """A JSON object that is not empty."""
    value = _read_json(name, text)
    if not isinstance(value, dict) or not value:
        raise InvalidConfig(f'{name} is JSON like {{"topic": ...}}, not {text!r}')
    return value


def _read_json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidConfig(f"{name} is no JSON: {error}") from None


def read_assigned(name: str, text: str) -> dict[str, tuple[str, ...]]:
    """Topics with the names of their queues."""
    value = read_json_object(name, text)
    for queues in value.values():
        if not isinstance(queues, list) or not queues or not all(isinstance(one, int | str) for one in queues):
            raise InvalidConfig(f'{name} is JSON like {{"topic": [0, 1]}}, not {text!r}')
    return {topic_of(topic): tuple(str(one) for one in queues) for topic, queues in value.items()}


def read_each(name: str, value: Mapping[str, Any], text: str, least: int) -> Given:
    """A number for each queue of each topic."""
    for queues in value.values():
        numbers = queues.values() if isinstance(queues, dict) else [None]
        if not all(type(one) is int and one >= least for one in numbers):
            raise InvalidConfig(f'{name} is JSON like {{"topic": {{"0": 23, "1": -2}}}}, not {text!r}')
    return {topic_of(topic): dict(queues) for topic, queues in value.items()}


def read_offsets(name: str, text: str) -> Bound:
    """A word for one end of all queues, or offsets of each."""
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.strip().lower() in words:
        return Bound("offset", words[text.strip().lower()], option=name)
    if not text.lstrip().startswith("{"):
        hint = 'or JSON like {"topic": {"0": 23, "1": -2}}'
        raise InvalidConfig(f"{name} is earliest or latest, not {text!r}", hint=hint)
    given = read_json_object(name, text)
    logs = given.pop(LOGS, {})
    if not isinstance(logs, dict) or not all(isinstance(one, str) for one in logs.values()):
        raise InvalidConfig(f"{name}: {LOGS} names the log of each broker, as in a checkpoint")
    return Bound("offset", LATEST, read_each(name, given, text, EARLIEST), name, logs)


def read_timestamp(name: str, text: str) -> Bound:
    """A store time."""
    return Bound("time", read_amount(name, text), option=name)


def read_timestamps(name: str, text: str) -> Bound:
    """Store times of each queue."""
    return Bound("time", 0, read_each(name, read_json_object(name, text), text, 0), name)
