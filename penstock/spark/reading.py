"""Short calls for notebooks: a frame of topics, views of all topics, and an explanation of a frame.

They add nothing to ``format("penstock")`` but shorter words: an editor completes the options' names, lists stand where
the source takes text, and ``explain`` tells what Spark's own ``explain`` does not know of a Python source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from penstock.blocking.routes import Routes
from penstock.errors import InvalidConfig
from penstock.protocol.addresses import SERVERS, parse_servers
from penstock.protocol.requests.sessions import HOME_TOPIC
from penstock.spark.decoders.ddl import quoted
from penstock.spark.option_names import FurtherOptions
from penstock.spark.options import SourceOptions, parse
from penstock.spark.where import END
from topicmap.queues import is_own_topic, readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "penstock"


def read(
    spark: SparkSession,
    topics: str | Iterable[str] = (),
    *,
    servers: str = SERVERS,
    stream: bool = False,
    columns: str | Iterable[str] = (),
    mqtt_filter: str | Iterable[str] = (),
    where: str = "",
    **options: Unpack[FurtherOptions],
) -> DataFrame:
    """Topics as a frame.

    Args:
        spark: a session that knows the source.
        topics: names of topics; may be left out with ``mqtt_filter``, ``subscribePattern`` or ``assign``.
        servers: name servers.
        stream: a stream instead of a batch.
        columns: of messages; only those that are named travel from the broker's reply to Spark.
        mqtt_filter: MQTT filters; reads only messages that one of them matches.
        where: conditions that the broker judges.
        options: further options of the source.
    """
    given: dict[str, str] = {"servers": servers, **{name: str(value) for name, value in options.items()}}
    given |= {"subscribe": joined} if (joined := _joined(topics)) else {}
    given |= {"columns": joined} if (joined := _joined(columns)) else {}
    if mqtt_filter:
        given["mqttFilter"] = mqtt_filter if isinstance(mqtt_filter, str) else json.dumps(list(mqtt_filter))
    given |= {"where": where} if where else {}
    kind: Any = spark.readStream if stream else spark.read
    frame: DataFrame = kind.format(FORMAT).options(**given).load()
    return frame


def _joined(names: str | Iterable[str]) -> str:
    return names if isinstance(names, str) else ",".join(names)


def views(
    spark: SparkSession, *, servers: str = SERVERS, pattern: str = ".*", **options: Unpack[FurtherOptions]
) -> list[str]:
    """Makes a temporary view of each topic whose name the pattern matches, for SQL; returns their names.

    A view has the topic's readable name, and is made anew where there is one. Topics that come later are in the
    answer of the next call; those in which only brokers and gateways store are left out. Tables that stay are made
    with ``CREATE TABLE ... USING penstock OPTIONS (...)``.
    """
    with Routes(parse_servers(servers)) as routes:
        topics = routes.topic_names().topics
    chosen = re.compile(pattern)
    made = []
    for topic in topics:
        if chosen.fullmatch(topic) and topic != HOME_TOPIC and not is_own_topic(topic):
            name = readable(topic)
            read(spark, [topic], servers=servers, **options).createOrReplaceTempView(quoted(name))
            made.append(name)
    return made


def explain(frame: DataFrame) -> str:
    """The options of a frame's Penstock sources, one per line; Spark's plan does not show them.

    Raises:
        InvalidConfig: the frame is one of Spark Connect, which does not tell its plan.
    """
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        raise InvalidConfig("a frame of Spark Connect does not show its plan", hint="df.explain() has what Spark knows")
    leaves = plan.queryExecution().analyzed().collectLeaves()
    told = []
    for at in range(leaves.size()):
        options = _options_of(leaves.apply(at))
        if options is not None:
            told += describe(options)
    return "\n".join(told)


def _options_of(leaf: Any) -> SourceOptions | None:
    """Those of a plan's leaf that is a Penstock source."""
    kind = leaf.getClass().getSimpleName()
    if kind == "DataSourceV2Relation" and FORMAT in str(leaf.table().name()).lower():
        return parse(_map_of(leaf.options()), stream=False)
    if kind == "StreamingRelationV2" and str(leaf.sourceName()).lower() == FORMAT:
        return parse(_map_of(leaf.extraOptions()), stream=True)
    return None


def _map_of(options: Any) -> Mapping[str, str]:
    return {str(name): str(value) for name, value in options.asCaseSensitiveMap().items()}


def describe(options: SourceOptions) -> list[str]:
    """The options of a query, in lines for people."""
    what = ", ".join(options.topics) or options.pattern or ", ".join(options.assigned)
    kind = "pattern" if options.pattern else "topics"
    lines = [f"penstock {'stream' if options.is_stream else 'batch'} of {kind} {what} at {','.join(options.servers)}"]
    where = options.where
    if options.names:
        lines.append(f"  names, at the broker: {', '.join(options.names)}")
    if where.of_queues:
        lines.append(f"  queues, when it is planned: {_told(where.of_queues)}")
    for name, (first, last) in (("offsets", where.offsets), ("store times in ms", where.times)):
        if (first, last) != (0, END):
            below = f" and below {last}" if last < END else ""
            lines.append(f"  {name}, when it is planned: from {first}{below}")
    selector = where.selector("", options.selector)
    if selector:
        lines.append(f"  messages, at the broker: {selector}")
    if options.tags:
        lines.append(f"  tags, in the broker's index: {', '.join(options.tags)}")
    if options.reads_copies:
        lines.append("  read at the copies of a broker's log, where it has any")
    lines.append(f"  columns: {', '.join(options.columns)}")
    return lines


def _told(conditions: Iterable[Any]) -> str:
    words = []
    for one in conditions:
        values = ", ".join(map(repr, one.values))
        words.append(f"{one.name} {'NOT ' * one.negated}{one.word} {values}".rstrip())
    return " AND ".join(words)
