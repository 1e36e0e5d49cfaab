"""The options of ``format("penstock")``: Kafka's names where the meaning is the same.

Pure. Spark hands options over as text with names in lower case; here they become one checked value. An option that does
not exist is refused and the nearest one named, for a mistyped ``startingOffsets`` would otherwise silently mean the
default.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.errors import InvalidConfig, InvalidFilter
from penstock.protocol.addresses import SERVERS
from penstock.spark.columns import BASE
from penstock.spark.decoders.formats import FORMATS, format_of, schema_text
from penstock.spark.logins import NO_LOGIN, OPTIONS, Login, login_of
from penstock.spark.offsets import EARLIEST, LATEST
from penstock.spark.payloads import PAYLOADS, RAW
from penstock.spark.values import (
    Bound,
    read_amount,
    read_assigned,
    read_columns,
    read_count,
    read_duration,
    read_flag,
    read_group,
    read_milliseconds,
    read_mqtt_filters,
    read_names,
    read_offsets,
    read_one_of,
    read_pattern,
    read_selector,
    read_servers,
    read_text,
    read_timestamp,
    read_timestamps,
    read_topics,
    read_where,
)
from penstock.spark.where import ALL, Where
from penstock.telemetry.decode import COLUMNS_NEEDED
from topicmap.queues import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, TRACE_TOPIC, encode_level

_LATEST: Final = Bound("offset", LATEST)
_NOT_OF_DEVICES: Final = "|".join((DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, TRACE_TOPIC, encode_level("$")))
"""Prefixes of topics whose messages an MQTT filter with a leading wildcard does not match."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a query.

    Attributes:
        servers: addresses of name servers.
        topics, pattern, assigned: exactly one is given: names, a regular expression for names, or topics with queues.
        is_implied: whether the topics follow from MQTT filters, so that they may not be there yet.
        starting, ending: where reading begins, and for a batch ends.
        late_start: what a queue without a message at or after the starting time does: ``error`` or ``latest``.
        rows_per_trigger: most rows of one micro-batch.
        rows_awaited, delay_s: a micro-batch waits until it has that number of rows, at most ``delay_s``.
        group: the consumer group under which brokers show the query's position; empty for none.
        partitions_min, partitions_max, target_rows: how partitions are cut (``planning``).
        read_from: ``leader``, or ``copies``: the nodes that follow, where a log has any.
        fail_on_data_loss: whether messages that are lost end the query: retention removed them, they are damaged, or
            their log was replaced. A broker that is away has lost nothing.
        allow_incomplete: whether a query leaves out brokers that are away instead of waiting for them.
        patience_s: longest wait for a broker or name server that is away.
        columns: which columns rows have, in order.
        payload: ``raw`` for rows that are messages, ``readings`` for rows that are measured values, else the format in
            which ``data`` is decoded from payloads, by ``payload_schema`` and, of protobuf, ``payload_message``.
        tags, names, selector: only messages with one of these tags, whose MQTT name one of these MQTT filters matches,
            which this selector wants; the broker chooses.
        where: which queues, offsets and messages of all that.
        retries, retry_pause_s: minimum number of repetitions of an unanswered request, and the pause between them.
        pull_bytes, batch_rows: most bytes of a pull and rows of an Arrow batch.
        timeout_s: deadline of each request.
        is_stream: whether it is a stream's.
        login: the login of the query's connections.
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
    rows_awaited: int = 0
    delay_s: float = 900.0
    group: str = ""
    partitions_min: int = 1
    partitions_max: int = 0
    target_rows: int = 50_000
    read_from: str = "leader"
    fail_on_data_loss: bool = True
    allow_incomplete: bool = False
    patience_s: float = 300.0
    columns: tuple[str, ...] = BASE
    payload: str = RAW
    payload_schema: str = ""
    payload_message: str = ""
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
    login: Login = NO_LOGIN

    @property
    def reads_copies(self) -> bool:
        """Whether tasks read at the copies of a log."""
        return self.read_from == "copies"


# ---------------------------------------------------------------- the table


class _Option(NamedTuple):
    field: str
    read: Callable[[str, str], Any]


# A later one of the same field wins over an earlier one: a time over times per queue over offsets, as in Kafka.
_TABLE: Final[Mapping[str, _Option]] = {
    "bootstrap.servers": _Option("servers", read_servers),
    "kafka.bootstrap.servers": _Option("servers", read_servers),
    "nameServer": _Option("servers", read_servers),
    "servers": _Option("servers", read_servers),
    "subscribe": _Option("topics", read_topics),
    "subscribePattern": _Option("pattern", read_pattern),
    "assign": _Option("assigned", read_assigned),
    "startingOffsets": _Option("starting", read_offsets),
    "startingOffsetsByTimestamp": _Option("starting", read_timestamps),
    "startingTimestamp": _Option("starting", read_timestamp),
    "startingOffsetsByTimestampStrategy": _Option("late_start", read_one_of("error", "latest")),
    "endingOffsets": _Option("ending", read_offsets),
    "endingOffsetsByTimestamp": _Option("ending", read_timestamps),
    "endingTimestamp": _Option("ending", read_timestamp),
    "maxOffsetsPerTrigger": _Option("rows_per_trigger", read_count),
    "minOffsetsPerTrigger": _Option("rows_awaited", read_count),
    "maxTriggerDelay": _Option("delay_s", read_duration),
    "kafka.group.id": _Option("group", read_group),
    "group": _Option("group", read_group),
    "minPartitions": _Option("partitions_min", read_count),
    "maxPartitions": _Option("partitions_max", read_count),
    "partitionTargetRows": _Option("target_rows", read_count),
    "readFrom": _Option("read_from", read_one_of("leader", "copies")),
    "failOnDataLoss": _Option("fail_on_data_loss", read_flag),
    "allowIncomplete": _Option("allow_incomplete", read_flag),
    "brokerPatienceMs": _Option("patience_s", read_milliseconds),
    "columns": _Option("columns", read_columns),
    "includeHeaders": _Option("headers", read_flag),
    "payload": _Option("payload", read_one_of(*PAYLOADS)),
    "payloadSchema": _Option("payload_schema", read_text),
    "payloadMessage": _Option("payload_message", read_text),
    "mqttFilter": _Option("names", read_mqtt_filters),
    "filter": _Option("selector", read_selector),
    "where": _Option("where", read_where),
    "tags": _Option("tags", read_names),
    "fetchOffset.numRetries": _Option("retries", read_amount),
    "fetchOffset.retryIntervalMs": _Option("retry_pause_s", read_milliseconds),
    "pollTimeoutMs": _Option("timeout_s", read_milliseconds),
    "maxBytesPerFetch": _Option("pull_bytes", read_count),
    "batchRows": _Option("batch_rows", read_count),
    **{name: _Option(field, read_text) for name, field in OPTIONS.items()},
}
NAMES: Final = tuple(_TABLE)
_BY_LOWER: Final = {name.lower(): name for name in _TABLE}
_WHAT_TO_READ: Final = ("subscribe", "subscribePattern", "assign")
_FILTER: Final = "mqttFilter"
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "group", "kafka.group.id")
_BATCH_ONLY: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")


def parse(given: Mapping[str, str], *, stream: bool) -> SourceOptions:
    """The options of a query. Raises ``InvalidConfig``, which names the option, what is wrong and what would be right.

    Args:
        given: names, in any case, and values as text.
        stream: a stream starts at the latest offsets unless told, a batch at the earliest.
    """
    named = _named(given)
    _check_together(named, stream)
    values: dict[str, Any] = {
        option.field: option.read(name, named[name]) for name, option in _TABLE.items() if name in named
    }
    values.setdefault("starting", Bound("offset", LATEST if stream else EARLIEST))
    values.pop("headers", None)
    values["login"] = login_of(values)
    values["columns"] = columns_of(given)
    if values.get("payload") in FORMATS:
        values["payload_schema"] = payload_of(given)[1]
    elif "payload_schema" in values or "payload_message" in values:
        raise InvalidConfig("payloadSchema and payloadMessage need a payload", hint=f"one of {', '.join(FORMATS)}")
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
    if options.rows_per_trigger is not None and options.rows_awaited > options.rows_per_trigger:
        raise InvalidConfig("minOffsetsPerTrigger is above maxOffsetsPerTrigger: no batch would be large enough")
    if options.is_stream and options.where.has_ends:
        raise InvalidConfig("where: offset and timestamp bound a batch", hint="startingTimestamp begins a stream")
    retries = [one for one in (*options.topics, *options.assigned) if one.startswith(RETRY_PREFIX)]
    if retries and (options.selector or options.where.of_messages):
        raise InvalidConfig(f"brokers do not choose among what a group tries again ({retries[0]})", hint="df.where()")
    if not (wanted := options.where.selector("", options.selector)):
        return
    from penstock.protocol.selectors.compiling import selector_of

    try:
        selector_of(wanted)
    except InvalidFilter as error:
        raise InvalidConfig(f"filter and where together: {error.message}") from None


def _topics_under(filters: tuple[str, ...]) -> dict[str, Any]:
    """The subscription of MQTT filters: the topics of their first levels, or all topics if a filter begins with a
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
    named = _named(given)
    if named.get("payload") == "readings":
        return COLUMNS_NEEDED
    columns = read_columns("columns", named["columns"]) if "columns" in named else BASE
    headers = read_flag("includeHeaders", named.get("includeHeaders", "false"))
    return columns + ("properties",) * (headers and "properties" not in columns)


def payload_of(given: Mapping[str, str]) -> tuple[str, str, str]:
    """The format of payloads that the options choose, its schema, and the message's name. Raises ``InvalidConfig``."""
    named = _named(given)
    payload, message = named.get("payload", RAW), named.get("payloadMessage", "").strip()
    text = named.get("payloadSchema", "").strip()
    if payload in FORMATS:
        text = schema_text(payload, text)
        format_of(payload, text, message)
    return payload, text, message


def _named(given: Mapping[str, str]) -> dict[str, str]:
    """The options by the names of the table."""
    return {_known(name): str(value) for name, value in given.items()}


def _known(name: str) -> str:
    known = _BY_LOWER.get(name.lower())
    if known is not None:
        return known
    if name.lower().startswith(("kafka.sasl.", "kafka.ssl.", "kafka.security.")):
        raise InvalidConfig(f"option {name} is Kafka's, and would do nothing here", hint=f"it is {', '.join(OPTIONS)}")
    if name.lower() == "groupidprefix":
        said = "option groupIdPrefix is Kafka's: there each start of a query makes a group with a name by chance"
        raise InvalidConfig(said, hint="group names the one under which brokers show the query, at each start the same")
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
    for name in _STREAM_ONLY:
        if not stream and name in named:
            raise InvalidConfig(f"{name} is for streams", hint="endingOffsets bounds a batch")
