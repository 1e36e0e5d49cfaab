"""Sparkplug's metrics by name, over a stream: a birth's aliases and types hold for the messages behind it.

``Edge`` is the state of one edge node with its devices: JSON between batches. It takes the node's messages in order and
gives a row for each metric, and one for each death. ``metrics`` runs it in Spark, for batches and for streams.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa

from penstock.spark.decoders.ddl import parse
from penstock.spark.decoders.sparkplug import signed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SEQ_END: Final = 256
_OF_BIRTH: Final = "bdSeq"
SCHEMA: Final = (
    "group STRING, node STRING, device STRING, type STRING, metric STRING, datatype STRING, event_time TIMESTAMP, "
    "value DOUBLE, text STRING, bytes BINARY, online BOOLEAN, gap BOOLEAN, error STRING, "
    "topic STRING, queue INT, offset BIGINT"
)


class Edge:
    """The state of an edge node.

    Attributes:
        births: of each device that is born, ``""`` for the node: alias (or name) to name and type.
        birth: the ``bdSeq`` of the node's birth.
        seq: of its latest message; -1 before the first.
    """

    def __init__(self, state: str | None = None) -> None:
        found = orjson.loads(state) if state else {"births": {}, "birth": None, "seq": -1}
        self.births: dict[str, dict[str, list[str | None]]] = found["births"]
        self.birth: float | None = found["birth"]
        self.seq: int = found["seq"]

    def state(self) -> str:
        """For ``Edge(state)``, in a later batch."""
        return orjson.dumps({"births": self.births, "birth": self.birth, "seq": self.seq}).decode()

    def take(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows of the node's next message. A death of an earlier birth than the node's latest gives none."""
        kind, device = message["type"], message.get("device") or ""
        metrics = message.get("metrics") or []
        if kind.endswith("BIRTH"):
            self._born(device, metrics, is_node=kind == "NBIRTH")
        elif kind == "NDEATH":
            birth = _birth_of(metrics)
            if self.birth is not None and birth is not None and birth != self.birth:
                return
            self.births.clear()
            self.birth = None
            yield self._row(message, {}, gap=False)
            return
        gap = self._has_gap(kind, message.get("seq"))
        if kind == "DDEATH":
            self.births.pop(device, None)
            yield self._row(message, {}, gap=gap)
            return
        for metric in metrics:
            yield self._row(message, self._named(device, metric), gap=gap)

    def _born(self, device: str, metrics: list[dict[str, Any]], *, is_node: bool) -> None:
        if is_node:
            self.births.clear()
            self.birth = _birth_of(metrics)
        known: dict[str, list[str | None]] = {}
        for metric in metrics:
            name, alias = metric.get("name"), metric.get("alias")
            if name is not None:
                known[f"n{name}"] = [name, metric.get("datatype")]
                if alias is not None:
                    known[f"a{alias}"] = [name, metric.get("datatype")]
        self.births[device] = known

    def _has_gap(self, kind: str, seq: int | None) -> bool:
        if seq is None or kind.endswith("CMD"):
            return False
        gap = kind != "NBIRTH" and self.seq >= 0 and seq != (self.seq + 1) % _SEQ_END
        self.seq = seq
        return gap

    def _named(self, device: str, metric: dict[str, Any]) -> dict[str, Any]:
        name, alias = metric.get("name"), metric.get("alias")
        known = self.births.get(device) or {}
        found = known.get(f"n{name}" if name is not None else f"a{alias}")
        if found is None and name is None:
            since = "its birth" if device in self.births else "no birth since its death, or since the first message"
            return metric | {"error": f"alias {alias} is not known: {since} does not tell"}
        if found is None or metric.get("datatype"):
            return metric if found is None else metric | {"name": found[0]}
        return _typed(metric | {"name": found[0]}, found[1])

    def _row(self, message: dict[str, Any], metric: dict[str, Any], *, gap: bool) -> dict[str, Any]:
        device = message.get("device")
        packed = metric.get("bytes")
        return {
            "group": message.get("group"),
            "node": message.get("node"),
            "device": device,
            "type": message["type"],
            "metric": metric.get("name"),
            "datatype": metric.get("datatype"),
            "event_time": _time(metric.get("timestamp") or message.get("timestamp")),
            "value": metric.get("value"),
            "text": metric.get("text"),
            "bytes": None if packed is None else base64.b64decode(packed),
            "online": (device or "") in self.births,
            "gap": gap,
            "error": metric.get("error"),
        }


def _typed(metric: dict[str, Any], datatype: str | None) -> dict[str, Any]:
    """A metric with the type of its birth: a whole number was taken as unsigned before."""
    metric = metric | {"datatype": datatype}
    text = metric.get("text")
    if datatype and datatype.startswith("Int") and text is not None and text.isdecimal():
        whole = signed(int(text), datatype)
        metric |= {"value": float(whole), "text": str(whole)}
    return metric


def _birth_of(metrics: list[dict[str, Any]]) -> float | None:
    return next((one.get("value") for one in metrics if one.get("name") == _OF_BIRTH), None)


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def metrics(frame: DataFrame) -> DataFrame:
    """The metrics of Sparkplug's messages, each by its name, and the deaths; ``SCHEMA`` has the columns.

    Args:
        frame: rows of ``payload=sparkplug``, of a batch or a stream, with ``topic``, ``queue`` and ``offset``.
            Undecodable ones are left out (``split``).

    A batch knows the births that it reads; a stream keeps them in its state. Messages of a node are taken in the order
    of their offsets: its queue has them in the order in which it sent them. Needs pandas.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.streaming.state import GroupStateTimeout

    said = frame.where("data IS NOT NULL AND data.type <> 'STATE'").select(
        f.col("data.group").alias("group"),
        f.col("data.node").alias("node"),
        f.to_json("data", {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}).alias("said"),
        "topic",
        "queue",
        "offset",
    )
    grouped = said.groupBy("group", "node")
    if not frame.isStreaming:
        found: DataFrame = grouped.applyInPandas(_of_batch, SCHEMA)
        return found
    return grouped.applyInPandasWithState(_of_stream, SCHEMA, "state STRING", "append", GroupStateTimeout.NoTimeout)


def _of_batch(messages: Any) -> Any:
    return _rows(Edge(), [messages])


def _of_stream(key: Any, parts: Iterator[Any], state: Any) -> Iterator[Any]:
    edge = Edge(state.get[0] if state.exists else None)
    rows = _rows(edge, list(parts))
    state.update((edge.state(),))
    yield rows


def _rows(edge: Edge, parts: list[Any]) -> Any:
    """A pandas frame of rows; ``parts``: pandas frames of one node's messages."""
    messages = [one for part in parts for one in part.to_dict("records")]
    messages.sort(key=lambda one: (one["topic"], one["queue"], one["offset"]))
    found = [
        row | {"topic": one["topic"], "queue": one["queue"], "offset": one["offset"]}
        for one in messages
        for row in edge.take(orjson.loads(one["said"]))
    ]
    return pa.Table.from_pylist(found, pa.schema(list(parse(SCHEMA)))).to_pandas(date_as_object=False)
