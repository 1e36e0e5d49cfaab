"""The readers before a real broker, driven as Spark drives them: what is read with filters and conditions."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable
from stored_queues import rows_of

from penstock import Message
from penstock.blocking import Admin, Producer
from penstock.blocking.routes import Routes
from penstock.errors import InvalidConfig
from penstock.protocol.requests.groups import DescribeGroup, GroupDetail
from penstock.spark.source import PenstockSource
from tests.patience import poll

Row = dict[str, Any]
COLUMNS = "key,value,topic,queue,offset,timestamp,mqtt_topic,tags,properties"


def send(cluster: Any, messages: list[Message]) -> None:
    with Producer(servers=cluster.servers) as producer:
        producer.send_many(messages)


def made(first: int, count: int) -> list[Message]:
    return [
        Message(
            "site",
            b"%d" % at,
            key=f"k{at % 7}" if at % 5 else b"\xff%d" % (at % 2),
            tag=("red", "green", "")[at % 3],
            mqtt_topic=f"site/d{at % 4}/{'temp' if at % 2 else 'hum'}" if at % 11 else "",
            properties={"room": str(at % 3)} if at % 2 else {},
        )
        for at in range(first, first + count)
    ]


def source(cluster: Any, **given: str) -> PenstockSource:
    what = {} if {"mqttFilter", "subscribePattern"} & given.keys() else {"subscribe": "site"}
    return PenstockSource(CaseInsensitiveDict({"servers": cluster.servers, "columns": COLUMNS} | what | given))


def batch(cluster: Any, **given: str) -> list[Row]:
    reader = source(cluster, **given).reader(schema=None)
    return [row for part in reader.partitions() for row in rows_of(reader.read(pickle.loads(pickle.dumps(part))))]


@contextmanager
def streaming(cluster: Any, **given: str) -> Iterator[Callable[[], list[Row]]]:
    """Reads what has come since it was called last."""
    reader = source(cluster, **given).streamReader(schema=None)
    at = reader.initialOffset()

    def read() -> list[Row]:
        nonlocal at
        end = reader.latestOffset(at, ReadAllAvailable())
        parts = reader.partitions(at, end)
        at = end
        return [row for part in parts for row in rows_of(reader.read(pickle.loads(pickle.dumps(part))))]

    yield read
    reader.stop()


def values(rows: list[Row]) -> set[int]:
    found = [int(row["value"]) for row in rows]
    assert len(found) == len(set(found))
    return set(found)


WHERES: dict[str, Callable[[Row], bool]] = {
    "tags = 'red'": lambda row: row["tags"] == "red",
    "tags <> 'red'": lambda row: row["tags"] not in ("red", None),
    "tags IS NULL AND queue IN (0, 2)": lambda row: row["tags"] is None and row["queue"] in (0, 2),
    "mqtt_topic LIKE 'site/d1%'": lambda row: row["mqtt_topic"].startswith("site/d1"),
    "mqtt_topic = 'site'": lambda row: row["mqtt_topic"] == "site",
    "mqtt_topic NOT IN ('site', 'site/d1/temp')": lambda row: row["mqtt_topic"] not in ("site", "site/d1/temp"),
    "key = 'k3'": lambda row: row["key"] == b"k3",
    "key IN (X'FF30', 'k1')": lambda row: row["key"] in (b"\xff0", b"k1"),
    "key <> 'k3'": lambda row: row["key"] != b"k3",
    "properties['room'] = '1' AND offset BETWEEN 10 AND 60": lambda row: (
        dict(row["properties"]).get("room") == "1" and 10 <= row["offset"] <= 60
    ),
    "offset > 3 AND offset <= 20 AND partition = 1": lambda row: 3 < row["offset"] <= 20 and row["queue"] == 1,
    "topic = 'other'": lambda row: False,
}


def test_conditions_and_filters_leave_what_python_leaves(real_cluster: Any) -> None:
    send(real_cluster, made(0, 300))
    first = batch(real_cluster)
    send(real_cluster, made(300, 300))
    every = batch(real_cluster)
    assert values(every) == set(range(600))
    for text, holds in WHERES.items():
        assert values(batch(real_cluster, where=text)) == values([row for row in every if holds(row)]), text
    begin = max(row["timestamp"] for row in first)
    for sign, kept in {
        ">": lambda at: at > begin,
        ">=": lambda at: at >= begin,
        "<": lambda at: at < begin,
        "<=": lambda at: at <= begin,
        "=": lambda at: at == begin,
    }.items():
        text = f"timestamp {sign} TIMESTAMP '{begin.astimezone(UTC).isoformat()}'"
        assert values(batch(real_cluster, where=text)) == values([row for row in every if kept(row["timestamp"])]), text
    assert datetime.now(UTC) > begin
    temps = {at for at in range(600) if at % 2 and at % 11}
    assert values(batch(real_cluster, mqttFilter="site/+/temp,none/#")) == temps
    assert values(batch(real_cluster, mqttFilter="+/d1/#")) == {at for at in range(600) if at % 4 == 1 and at % 11}
    assert values(batch(real_cluster, mqttFilter='["site"]')) == {at for at in range(600) if at % 11 == 0}
    both = batch(real_cluster, mqttFilter="site/+/temp", filter="room = 1", where="tags = 'green'", subscribe="site")
    assert values(both) == {at for at in temps if at % 3 == 1}


def test_a_stream_of_a_mqtt_filter_reads_what_matches_and_topics_that_come(real_cluster: Any) -> None:
    with streaming(real_cluster, mqttFilter="site/+/temp,late/#", where="tags IS NOT NULL") as read:
        assert read() == []
        send(real_cluster, made(0, 100))
        assert values(read()) == {at for at in range(100) if at % 2 and at % 11 and at % 3 != 2}
        assert read() == []
        send(real_cluster, [Message("late", b"7", tag="x", mqtt_topic="late/a"), Message("late", b"8")])
        assert values(read()) == {7}


def lag(cluster: Any, group: str) -> int:
    with Routes(cluster.servers) as routes:
        (broker,) = routes.holders("site").brokers
        detail = routes.link(broker.address).ask(DescribeGroup(group), GroupDetail)
    return sum(one.end - one.offset for one in detail.lags)


def test_the_trace_of_a_message_has_the_query_that_read_it_and_that_its_group_is_beyond_it(real_cluster: Any) -> None:
    with Admin(real_cluster.servers) as admin:
        admin.create_topic("site", queues=1, trace_every=1)
        with Producer(servers=real_cluster.servers) as producer:
            id = producer.send("site", b"7").id
        with streaming(real_cluster, startingOffsets="earliest", group="nightly") as read:
            assert [len(read()), len(read())] == [1, 0]
        batch(real_cluster)
        wanted = {("delivered", "Spark, group nightly"), ("acknowledged", "nightly"), ("delivered", "Spark")}
        poll(f"{wanted}", lambda: {(row.event, row.who) for row in admin.trace(id)}, wanted.issubset)


def test_a_broker_shows_how_far_the_group_of_a_query_is_behind(real_cluster: Any) -> None:
    send(real_cluster, made(0, 100))
    with streaming(real_cluster, startingOffsets="earliest", group="nightly") as read:
        assert len(read()) == 100
        assert lag(real_cluster, "nightly") == 100, "the batch is not finished as far as the source knows"
        assert read() == []
        assert lag(real_cluster, "nightly") == 0
        send(real_cluster, made(100, 7))
        assert lag(real_cluster, "nightly") == 7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mqttFilter": "a/#/b"}, "mqttFilter: 'a/#/b': # must be the last"),
        ({"mqttFilter": "$share/g/a"}, "is a share"),
        ({"mqttFilter": "[1]"}, "mqttFilter is a,b or JSON like"),
        ({"mqttFilter": ",".join(f"a/{at}" for at in range(65))}, "at most 64"),
        ({"filter": "level >"}, "filter: "),
        ({"where": "value = 'x'"}, "no column that the broker knows"),
        ({"subscribe": "%RETRY%g", "filter": "a = 1"}, "brokers do not choose among what a group tries again"),
    ],
)
def test_wrong_filters_are_refused_when_the_query_is_made(given: dict[str, str], said: str) -> None:
    options = {"subscribe": "t"} | given
    with pytest.raises(InvalidConfig, match=said):
        PenstockSource(CaseInsensitiveDict(options)).schema()
