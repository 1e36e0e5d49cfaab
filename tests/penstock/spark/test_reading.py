from __future__ import annotations

from typing import Any

from penstock.protocol.requests.sessions import HOME_TOPIC
from penstock.spark.option_names import FurtherOptions
from penstock.spark.options import NAMES, parse
from penstock.spark.reading import describe, views

ARGUMENTS = {"subscribe", "servers", "columns", "mqttFilter", "where"}
RARE = {"nameServer"}  # another name of an argument


def test_an_editor_knows_every_option_that_is_no_argument() -> None:
    names = {name for name in NAMES if "." not in name}
    assert set(FurtherOptions.__annotations__) == names - ARGUMENTS - RARE


def test_what_a_query_reads_is_told_in_lines() -> None:
    given = {
        "servers": "h:1",
        "mqttFilter": "site/+/temp",
        "where": "queue IN (0, 1) AND offset >= 5 AND timestamp < '2026-01-01' "
        "AND tags NOT IN ('a') AND topic IS NOT NULL",
        "filter": "level > 5",
        "columns": "value",
        "readFrom": "copies",
    }
    assert describe(parse(given, stream=False)) == [
        "penstock batch of topics site at h:1",
        "  names, at the broker: site/+/temp",
        "  queues, when it is planned: queue IN 0, 1 AND topic NOT IS NULL",
        "  offsets, when it is planned: from 5",
        "  store times in ms, when it is planned: from 0 and below 1767225600000",
        "  messages, at the broker: (level > 5) AND TAGS NOT IN ('a')",
        "  read at the copies of a broker's log, where it has any",
        "  columns: value",
    ]
    assert describe(parse({"subscribePattern": "a.*"}, stream=True))[0].startswith("penstock stream of pattern a.* at ")


class Views:
    """Takes a reader's options and a view's name as Spark would."""

    def __getattr__(self, name: str) -> Any:
        return self if name == "read" else lambda *_, **__: self


def test_views_are_of_topics_in_which_devices_and_programs_store(queues: Any) -> None:
    for topic in ("telemetry", "spBv1%2E0", HOME_TOPIC, "%sys%sessions", "%RETRY%billing"):
        queues.create(topic)
    spark: Any = Views()
    assert views(spark, servers=queues.address) == ["spBv1.0", "telemetry"]
