"""``penstock sql`` over real topics."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import penstock.spark
from penstock import Message
from penstock.blocking import Producer
from penstock.cli.root import root
from penstock.telemetry.history import NEWEST

AT = datetime(2026, 3, 1, 12, 0, 1, tzinfo=UTC)
BODIES = (
    (b'{"value": 21.5, "time": 1772366401, "site": "Kiel", "queue": "fast"}', "history/d1/temp"),
    (b'{"value": 22, "time": 1772366401000, "site": null}', "history/d2/in/temp"),
    (b'{"value": 3, "device": "d9", "metric": "hum", "time": 99999999999999}', "history/d1/temp"),
    (b"19.25", "history/d1/temp"),
    (b"\xff{", "history/d1/temp"),
    (b'{"value": "much", "site": [1]}', "history"),
)


class Kept:
    """The shared session, which a command must not stop."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """Forgets the tables, and goes on."""
        for table in self._spark.sql("SHOW TABLES").collect():
            if table.isTemporary:
                self._spark.catalog.dropTempView(table.tableName)


@pytest.fixture
def run(spark: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``run(query, *flags)``: the command's result."""
    monkeypatch.setattr(penstock.spark, "session", lambda **_: Kept(spark))
    return lambda *arguments: CliRunner().invoke(root, ["--server", cluster.servers, "sql", *arguments])


def test_topics_are_tables_whose_columns_are_the_fields_of_their_payloads(
    run: Any, cluster: Any, tmp_path: Path
) -> None:
    with Producer(servers=cluster.servers) as producer:
        producer.send_many([Message("history", body, key="k", mqtt_topic=name) for body, name in BODIES])
        producer.send_many([Message("sites-1", b'{"site": "Kiel", "floor": 2}')])
    query = "select device, metric, time, value, site, field_queue, payload, stored from history order by offset"
    result = run(query, "--json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    said = [tuple(row.values())[:6] for row in rows]
    at, stored = AT.isoformat().replace("+00:00", "Z"), [row["stored"] for row in rows]
    assert said == [
        ("d1", "temp", at, 21.5, "Kiel", "fast"),
        ("d2", "in/temp", at, 22.0, None, None),
        ("d9", "hum", stored[2], 3.0, None, None),
        ("d1", "temp", stored[3], 19.25, None, None),
        ("d1", "temp", stored[4], None, None, None),
        (None, None, stored[5], None, "[1]", None),
    ]
    assert rows[4]["payload"] == "\ufffd{"

    joined = "select floor, count(*), count(*) from history join `sites-1` using (site) group by floor"
    assert list(csv.reader(io.StringIO(run(joined, "--csv").stdout))) == [
        ["floor", "count(1)", "count(1)_2"],
        ["2", "1", "1"],
    ]
    kept = tmp_path / "kept.parquet"
    result = run("select offset from history where queue >= 0", "--out", str(kept))
    assert result.stderr == f"6 rows in {kept}\n"
    send_more = [Message("history", b'{"newer": 1}', key="k", mqtt_topic="history/d1/temp")] * (NEWEST + 7)
    with Producer(servers=cluster.servers) as producer:
        producer.send_many(send_more)
    result = run("select count(*) n, sum(newer) s from history", "--csv")
    assert result.stdout == "n,s\n513,507\n", result.stderr
    shown = run("select offset from history order by offset", "--limit", "2")
    assert shown.stdout.split() == ["offset", "0", "1"]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("select * from histroy", "error: there is no topic histroy\n       did you mean history?\n"),
        ("select nix from history", "error: A column, variable, or function parameter with name `nix` cannot be"),
        ("drop table elsewhere", "error: there is no table spark_catalog.default.elsewhere\n"),
        ("selct 1", "error: this is no SQL: "),
    ],
)
def test_a_mistake_is_one_sentence(run: Any, send: Any, query: str, told: str) -> None:
    send("history", [b"1"])
    result = run(query)
    assert result.exit_code in (2, 3)
    assert result.stderr.startswith(told)
    assert len(result.stderr.splitlines()) <= 2
