"""The options and columns of a write. Pure.

As with Kafka's sink the option ``topic`` wins over the column, and a write that has neither is refused before a row is
sent. A column that no message has is refused too: a mistyped name would silently be left out.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import InvalidConfig
from penstock.protocol.addresses import SERVERS
from penstock.protocol.topic_names import topic_of
from penstock.spark.logins import NO_LOGIN, OPTIONS, Login, login_of
from penstock.spark.values import read_amount, read_milliseconds, read_one_of, read_servers, read_text

_TEXT: Final = ("string",)
_BYTES: Final = ("binary", "string")
_NUMBER: Final = ("tinyint", "smallint", "int")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "value": _BYTES,
    "key": _BYTES,
    "topic": _TEXT,
    "mqtt_topic": _TEXT,
    "tags": _TEXT,
    "properties": ("map<string,string>",),
    "qos": _NUMBER,
    "retain": ("boolean",),
    "queue": _NUMBER,
    "partition": _NUMBER,
    "born_timestamp": ("timestamp",),
}
"""Columns that a message takes, with their types in Spark."""
PASSED_OVER: Final = (
    "offset",
    "timestamp",
    "timestampType",
    "client_id",
    "msg_id",
    "broker",
    "position",
    "traceparent",
)
"""Columns of read messages that the broker gives anew, or that are properties too."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of a write.

    Attributes:
        servers: addresses of name servers.
        topic: the topic of all rows; empty: the column says it.
        write_id, write_batch: the name of a batch write and its number; a repeated write with the same two adds no row
            twice.
        is_sorted: whether the rows of each partition are sorted before they go out, so that a broker recognises
            repeated rows in any order.
        patience_s, retries, retry_pause_s: longest wait for a broker that is away, minimum number of repetitions and
            the pause between them.
        timeout_s: deadline of each request.
        login: the login of the write's connections.
    """

    servers: tuple[str, ...] = (SERVERS,)
    topic: str = ""
    write_id: str = ""
    write_batch: int = 0
    is_sorted: bool = False
    patience_s: float = 300.0
    retries: int = 10
    retry_pause_s: float = 1.0
    timeout_s: float = 30.0
    login: Login = NO_LOGIN


_read_order: Final = read_one_of("given", "sorted")

_TABLE: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "bootstrap.servers": ("servers", read_servers),
    "kafka.bootstrap.servers": ("servers", read_servers),
    "nameServer": ("servers", read_servers),
    "servers": ("servers", read_servers),
    "topic": ("topic", lambda name, text: topic_of(read_text(name, text))),
    "writeId": ("write_id", read_text),
    "writeBatch": ("write_batch", read_amount),
    "rowOrder": ("is_sorted", lambda name, text: _read_order(name, text) == "sorted"),
    "brokerPatienceMs": ("patience_s", read_milliseconds),
    "fetchOffset.numRetries": ("retries", read_amount),
    "fetchOffset.retryIntervalMs": ("retry_pause_s", read_milliseconds),
    "pollTimeoutMs": ("timeout_s", read_milliseconds),
    **{name: (field, read_text) for name, field in OPTIONS.items()},
}
NAMES: Final = tuple(_TABLE)
_BY_LOWER: Final = {name.lower(): name for name in _TABLE}
_SPARKS: Final = ("checkpointlocation", "queryname")
"""Options of every streaming sink."""


def parse(given: Mapping[str, str], *, stream: bool) -> SinkOptions:
    """The options of a write. Raises ``InvalidConfig``, which names the option and what would be right."""
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name.lower() in _SPARKS:
            continue
        known = _known(name)
        field, read = _TABLE[known]
        values[field] = read(known, str(text))
    if stream and ("write_id" in values or "write_batch" in values):
        raise InvalidConfig("writeId and writeBatch are for batch writes", hint="a stream is known by its checkpoint")
    if "write_batch" in values and "write_id" not in values:
        raise InvalidConfig("writeBatch is a number within a writeId, which is missing")
    values["login"] = login_of(values)
    return SinkOptions(**values)


def check_columns(columns: Mapping[str, str], options: SinkOptions) -> None:
    """Raises ``InvalidConfig`` where rows with these columns, each with its type in Spark, are no messages."""
    if "value" not in columns:
        raise InvalidConfig(
            "a row to write has a column value", hint='SELECT to_json(struct(*)) AS value, "t" AS topic'
        )
    for name, kind in columns.items():
        if name in PASSED_OVER:
            continue
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"a message has {', '.join(COLUMNS)}; select these"
            raise InvalidConfig(f"no message has a column {name!r}", hint=hint)
        if kind not in COLUMNS[name]:
            types = " or ".join(one.upper() for one in COLUMNS[name])
            raise InvalidConfig(f"the column {name} is {types}, not {kind.upper()}", hint=f"CAST({name} AS ...)")
    if "queue" in columns and "partition" in columns:
        raise InvalidConfig("queue and partition are the same column; keep one")
    if not options.topic and "topic" not in columns and "mqtt_topic" not in columns:
        raise InvalidConfig(
            "no topic: nothing was written", hint='option("topic", ...), or a column topic or mqtt_topic'
        )


def _known(name: str) -> str:
    known = _BY_LOWER.get(name.lower())
    if known is not None:
        return known
    if name.lower() == "path":
        raise InvalidConfig("save() and start() take no path here", hint='name the topic with option("topic", ...)')
    near = difflib.get_close_matches(name.lower(), _BY_LOWER, n=1, cutoff=0.5)
    hint = f"did you mean {_BY_LOWER[near[0]]}?" if near else f"a write has {', '.join(NAMES[3:])}"
    raise InvalidConfig(f"a write has no option {name!r}", hint=hint)
