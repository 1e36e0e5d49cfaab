"""The options of ``format("penstock")``: Kafka's names where the meaning is the same.

Pure. Spark hands options over as text with names in lower case; here they become one checked value. An option that does
not exist is refused and the nearest one named, for a mistyped ``startingOffsets`` would otherwise silently mean the
default.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from penstock.errors import InvalidConfig, InvalidFilter
from penstock.protocol.addresses import SERVERS, parse_servers
from penstock.protocol.requests.messages import NAMES_MAX
from penstock.protocol.selectors.compiling import selector_of
from penstock.protocol.topic_names import topic_of
from penstock.spark.columns import BASE, COLUMNS
from penstock.spark.offsets import EARLIEST, LATEST, LOGS, Logs
from penstock.spark.where import ALL, Where, where_of
from penstock.telemetry.decode import COLUMNS_NEEDED
from topicmap.names import InvalidName, check_filter, is_share, quoted
from topicmap.queues import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, TRACE_TOPIC, encode_level

Given = Mapping[str, Mapping[str, int]]


class Bound(NamedTuple):
    """Where reading begins or ends: at offsets or at store times (milliseconds), the same for all queues or each its
    own. ``logs``: the log that the offsets of each broker are of, as far as that is known."""

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


_LATEST: Final = Bound("offset", LATEST)
_NOT_OF_DEVICES: Final = "|".join((DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, TRACE_TOPIC, encode_level("$")))
"""How topics begin whose messages a MQTT filter with a leading wildcard does not match."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query reads, and how.

    Attributes:
        servers: addresses of name servers.
        topics, pattern, assigned: exactly one is given: names, a regular expression for names, or topics with queues.
        is_implied: whether the topics follow from MQTT filters, so that they may not be there yet.
        starting, ending: where reading begins, and for a batch ends.
        late_start: what a queue without a message at or after the starting time does: ``error`` or ``latest``.
        rows_per_trigger: most rows of one micro-batch.
        partitions_min, partitions_max, target_rows: how partitions are cut (``planning``).
        fail_on_data_loss: whether messages that are lost end the query: retention removed them, they are damaged, or
            their log was replaced. A broker that is away has lost nothing.
        allow_incomplete: whether brokers that are away are left out rather than waited for.
        patience_s: how long a broker or name server that is away is waited for.
        columns: which columns rows have, in order.
        payload: ``raw`` for rows that are messages, ``readings`` for rows that are what their payloads say.
        tags, names, selector: only messages with one of these tags, whose MQTT name one of these MQTT filters matches,
            which this selector wants; the broker chooses.
        where: which queues, offsets and messages of all that.
        retries, retry_pause_s: how often at least a question is asked again that was not answered, and how long after.
        pull_bytes, batch_rows: most bytes of a pull and rows of an Arrow batch.
        timeout_s: deadline of each request.
        is_stream: whether it is a stream's.
    """

    servers: tuple[str, ...] = (SERVERS,)
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_implied: bool = False
    starting: Bound = _LATEST
    ending: Bound = _LATEST
    late_start: str = "error"
    rows_per_trigger: int | None = None
    partitions_min: int = 1
    partitions_max: int = 0
    target_rows: int = 50_000
    fail_on_data_loss: bool = True
    allow_incomplete: bool = False
    patience_s: float = 300.0
    columns: tuple[str, ...] = BASE
    payload: str = "raw"
    tags: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    selector: str = ""
    where: Where = ALL
    retries: int = 10
    retry_pause_s: float = 1.0
    pull_bytes: int = 4 * 1024 * 1024
    batch_rows: int = 20_000
    timeout_s: float = 30.0
    is_stream: bool = False


# ---------------------------------------------------------------- values


def _count(name: str, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise InvalidConfig(f"{name} is a number from 1 on, not {text!r}")
    return int(text)


def _amount(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise InvalidConfig(f"{name} is a number from 0 on, not {text!r}")
    return int(text)


def _milliseconds(name: str, text: str) -> float:
    return _amount(name, text) / 1000


def _flag(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise InvalidConfig(f"{name} is true or false, not {text!r}")
    return text.strip().lower() == "true"


def _names(name: str, text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise InvalidConfig(f"{name} is empty")
    return found


def _servers(name: str, text: str) -> tuple[str, ...]:
    return parse_servers(text)


def _pattern(name: str, text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidConfig(f"{name} is no regular expression: {error}") from None
    return text


def _columns(name: str, text: str) -> tuple[str, ...]:
    found = _names(name, text)
    for column in found:
        if column not in COLUMNS:
            raise InvalidConfig(f"{name}: there is no column {column!r}", hint=f"there are {', '.join(COLUMNS)}")
    return found


def _mqtt_filters(name: str, text: str) -> tuple[str, ...]:
    found = _json_list(name, text) if text.lstrip().startswith("[") else _names(name, text)
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


def _json_list(name: str, text: str) -> tuple[str, ...]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidConfig(f"{name} is no JSON: {error}") from None
    if not value or not all(isinstance(one, str) for one in value):
        raise InvalidConfig(f'{name} is a,b or JSON like ["a", "b"], not {text!r}')
    return tuple(dict.fromkeys(value))


def _selector(name: str, text: str) -> str:
    try:
        return selector_of(text).text
    except InvalidFilter as error:
        raise InvalidConfig(f"{name}: {error.message}", hint=error.hint) from None


def _where(name: str, text: str) -> Where:
    return where_of(text)


def _topics(name: str, text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(topic_of, _names(name, text))))


def _one_of(*words: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in words:
            raise InvalidConfig(f"{name} is {' or '.join(words)}, not {text!r}")
        return text

    return read


def _json(name: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidConfig(f"{name} is no JSON: {error}") from None
    if not isinstance(value, dict) or not value:
        raise InvalidConfig(f'{name} is JSON like {{"topic": ...}}, not {text!r}')
    return value


def _assigned(name: str, text: str) -> dict[str, tuple[str, ...]]:
    value = _json(name, text)
    for queues in value.values():
        if not isinstance(queues, list) or not queues or not all(isinstance(one, int | str) for one in queues):
            raise InvalidConfig(f'{name} is JSON like {{"topic": [0, 1]}}, not {text!r}')
    return {topic_of(topic): tuple(str(one) for one in queues) for topic, queues in value.items()}


def _each(name: str, value: Mapping[str, Any], text: str, least: int) -> Given:
    for queues in value.values():
        numbers = queues.values() if isinstance(queues, dict) else [None]
        if not all(type(one) is int and one >= least for one in numbers):
            raise InvalidConfig(f'{name} is JSON like {{"topic": {{"0": 23, "1": -2}}}}, not {text!r}')
    return {topic_of(topic): dict(queues) for topic, queues in value.items()}


def _offsets(name: str, text: str) -> Bound:
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.strip().lower() in words:
        return Bound("offset", words[text.strip().lower()], option=name)
    if not text.lstrip().startswith("{"):
        hint = 'or JSON like {"topic": {"0": 23, "1": -2}}'
        raise InvalidConfig(f"{name} is earliest or latest, not {text!r}", hint=hint)
    given = _json(name, text)
    logs = given.pop(LOGS, {})
    if not isinstance(logs, dict) or not all(isinstance(one, str) for one in logs.values()):
        raise InvalidConfig(f"{name}: {LOGS} names the log of each broker, as in a checkpoint")
    return Bound("offset", LATEST, _each(name, given, text, EARLIEST), name, logs)


def _timestamp(name: str, text: str) -> Bound:
    return Bound("time", _amount(name, text), option=name)


def _timestamps(name: str, text: str) -> Bound:
    return Bound("time", 0, _each(name, _json(name, text), text, 0), name)


# ---------------------------------------------------------------- the table


class _Option(NamedTuple):
    field: str
    read: Callable[[str, str], Any]


# A later one of the same field wins over an earlier one: a time over times per queue over offsets, as in Kafka.
_TABLE: Final[Mapping[str, _Option]] = {
    "bootstrap.servers": _Option("servers", _servers),
    "kafka.bootstrap.servers": _Option("servers", _servers),
    "nameServer": _Option("servers", _servers),
    "servers": _Option("servers", _servers),
    "subscribe": _Option("topics", _topics),
    "subscribePattern": _Option("pattern", _pattern),
    "assign": _Option("assigned", _assigned),
    "startingOffsets": _Option("starting", _offsets),
    "startingOffsetsByTimestamp": _Option("starting", _timestamps),
    "startingTimestamp": _Option("starting", _timestamp),
    "startingOffsetsByTimestampStrategy": _Option("late_start", _one_of("error", "latest")),
    "endingOffsets": _Option("ending", _offsets),
    "endingOffsetsByTimestamp": _Option("ending", _timestamps),
    "endingTimestamp": _Option("ending", _timestamp),
    "maxOffsetsPerTrigger": _Option("rows_per_trigger", _count),
    "minPartitions": _Option("partitions_min", _count),
    "maxPartitions": _Option("partitions_max", _count),
    "partitionTargetRows": _Option("target_rows", _count),
    "failOnDataLoss": _Option("fail_on_data_loss", _flag),
    "allowIncomplete": _Option("allow_incomplete", _flag),
    "brokerPatienceMs": _Option("patience_s", _milliseconds),
    "columns": _Option("columns", _columns),
    "includeHeaders": _Option("headers", _flag),
    "payload": _Option("payload", _one_of("raw", "readings")),
    "mqttFilter": _Option("names", _mqtt_filters),
    "filter": _Option("selector", _selector),
    "where": _Option("where", _where),
    "tags": _Option("tags", _names),
    "fetchOffset.numRetries": _Option("retries", _amount),
    "fetchOffset.retryIntervalMs": _Option("retry_pause_s", _milliseconds),
    "pollTimeoutMs": _Option("timeout_s", _milliseconds),
    "maxBytesPerFetch": _Option("pull_bytes", _count),
    "batchRows": _Option("batch_rows", _count),
}
NAMES: Final = tuple(_TABLE)
_BY_LOWER: Final = {name.lower(): name for name in _TABLE}
_WHAT_TO_READ: Final = ("subscribe", "subscribePattern", "assign")
_FILTER: Final = "mqttFilter"
_BATCH_ONLY: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")


def parse(given: Mapping[str, str], *, stream: bool) -> SourceOptions:
    """The options of a query. Raises ``InvalidConfig``, which names the option, what is wrong and what would be right.

    Args:
        given: names, in any case, and values as text.
        stream: a stream starts at the latest offsets unless told, a batch at the earliest.
    """
    named = {_known(name): str(value) for name, value in given.items()}
    _check_together(named, stream)
    values: dict[str, Any] = {
        option.field: option.read(name, named[name]) for name, option in _TABLE.items() if name in named
    }
    values.setdefault("starting", Bound("offset", LATEST if stream else EARLIEST))
    values.pop("headers", None)
    values["columns"] = columns_of(given)
    if not any(name in named for name in _WHAT_TO_READ):
        values |= _topics_under(values["names"]) | {"is_implied": True}
    if "where" in values and "tags" not in values:
        values["tags"] = values["where"].tags  # found without a look at the messages
    options = SourceOptions(**values, is_stream=stream)
    _check_chosen(options)
    if not stream and options.starting.is_only(LATEST):
        raise InvalidConfig("a batch from the latest offsets would be empty", hint="startingOffsets is earliest there")
    if options.ending.is_only(EARLIEST):
        raise InvalidConfig("endingOffsets earliest would be an empty batch", hint="it is latest by default")
    return options


def _check_chosen(options: SourceOptions) -> None:
    if options.is_stream and options.where.has_ends:
        raise InvalidConfig("where: offset and timestamp bound a batch", hint="startingTimestamp begins a stream")
    retries = [one for one in (*options.topics, *options.assigned) if one.startswith(RETRY_PREFIX)]
    if retries and (options.selector or options.where.of_messages):
        raise InvalidConfig(f"brokers do not choose among what a group tries again ({retries[0]})", hint="df.where()")
    try:
        selector_of(options.where.selector("", options.selector) or "TRUE")
    except InvalidFilter as error:
        raise InvalidConfig(f"filter and where together: {error.message}") from None


def _topics_under(filters: tuple[str, ...]) -> dict[str, Any]:
    """What is to be read for MQTT filters: the topics of their first levels, or all where one begins with a
    wildcard."""
    levels = [one.partition("/")[0] for one in filters]
    if "+" in levels or "#" in levels:
        named = "".join(f"|{re.escape(encode_level(one))}$" for one in levels if one.startswith("$"))
        return {"pattern": f"(?!{_NOT_OF_DEVICES}).*{named}"}
    return {"topics": tuple(dict.fromkeys(map(encode_level, levels)))}


def check(given: Mapping[str, str]) -> None:
    """Raises ``InvalidConfig`` for options that neither a batch nor a stream takes."""
    try:
        parse(given, stream=True)
    except InvalidConfig:
        parse(given, stream=False)


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of messages that the options choose. Raises ``InvalidConfig``."""
    named = {_known(name): str(value) for name, value in given.items()}
    if named.get("payload") == "readings":
        return COLUMNS_NEEDED
    columns = _columns("columns", named["columns"]) if "columns" in named else BASE
    headers = _flag("includeHeaders", named.get("includeHeaders", "false"))
    return columns + ("properties",) * (headers and "properties" not in columns)


def _known(name: str) -> str:
    known = _BY_LOWER.get(name.lower())
    if known is not None:
        return known
    if name.lower() == "path":
        raise InvalidConfig("load() takes no path here", hint='name the topic with option("subscribe", ...)')
    near = difflib.get_close_matches(name.lower(), _BY_LOWER, n=1, cutoff=0.5)
    hint = f"did you mean {_BY_LOWER[near[0]]}?" if near else "docs/guide/analyst.md has a table of them"
    raise InvalidConfig(f"there is no option {name!r}", hint=hint)


def _check_together(named: Mapping[str, str], stream: bool) -> None:
    what = [name for name in _WHAT_TO_READ if name in named]
    if len(what) > 1 or not (what or _FILTER in named):
        got = " and ".join(what) or "none"
        hint = "" if what else "of an SQL table: create it without a list of columns, else Spark forgets its OPTIONS"
        wanted = ", ".join(_WHAT_TO_READ)
        raise InvalidConfig(f"exactly one of {wanted} or {_FILTER} is needed, got {got}", hint=hint)
    for name in ("columns", "includeHeaders"):
        if named.get("payload") == "readings" and name in named:
            raise InvalidConfig(f"{name} chooses columns of messages; with payload=readings rows are readings")
    for name in _BATCH_ONLY:
        if stream and name in named:
            raise InvalidConfig(f"{name} is for batch reads; a stream has no end")
    if not stream and "maxOffsetsPerTrigger" in named:
        raise InvalidConfig("maxOffsetsPerTrigger is for streams", hint="endingOffsets bounds a batch")
