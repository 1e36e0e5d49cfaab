from __future__ import annotations

import json
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import InvalidConfig
from penstock.spark.metrics import KIND, QueryMetrics, serve_metrics
from penstock.spark.offsets import QueueLag
from penstock.spark.progress import QueryLag
from tests.patience import PATIENCE_S


class Streams:
    """The part of a session that a page needs."""

    def __init__(self) -> None:
        self.listeners: list[Any] = []

    def addListener(self, listener: Any) -> None:
        self.listeners.append(listener)

    def removeListener(self, listener: Any) -> None:
        self.listeners.remove(listener)


def hear(metrics: QueryMetrics, *, rows: int, offset: int, name: str = 'my "job"') -> None:
    end = {"t": {"broker-a:0": offset}}
    source = {"endOffset": end, "latestOffset": {"t": {"broker-a:0": 9}}, "numInputRows": rows}
    told = {"id": "q1", "name": name, "batchId": 1, "processedRowsPerSecond": 2.5, "sources": [source]}
    event = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(told)))
    metrics.listener.onQueryProgress(event)  # type: ignore[arg-type]


def test_the_page_has_rows_batches_and_the_lag_of_each_queue() -> None:
    metrics = QueryMetrics()
    assert metrics.text() == ""
    hear(metrics, rows=3, offset=4)
    hear(metrics, rows=2, offset=6)
    hear(metrics, rows=0, offset=6)
    lines = metrics.text().splitlines()
    query = r'query="my \"job\""'
    assert f"penstock_spark_batches_total{{{query}}} 2" in lines
    assert f"penstock_spark_rows_total{{{query}}} 5" in lines
    assert f"penstock_spark_rows_per_second{{{query}}} 2.5" in lines
    assert f'penstock_spark_lag{{{query},topic="t",broker="broker-a",queue="0"}} 3' in lines
    assert f'penstock_spark_offset{{{query},topic="t",broker="broker-a",queue="0"}} 6' in lines
    assert "# TYPE penstock_spark_lag gauge" in lines
    metrics.listener.onQueryTerminated(SimpleNamespace(id="q1"))  # type: ignore[arg-type]
    assert metrics.text() == ""


def test_a_page_is_served_until_it_is_stopped() -> None:
    session: Any = SimpleNamespace(streams=Streams())
    page = serve_metrics(session)
    hear(page.metrics, rows=3, offset=4)
    with urllib.request.urlopen(f"http://{page.address}/metrics", timeout=PATIENCE_S) as answer:
        assert answer.headers["Content-Type"] == KIND
        assert answer.read().decode() == page.metrics.text() != ""
    with pytest.raises(urllib.error.HTTPError, match="404") as raised:
        urllib.request.urlopen(f"http://{page.address}/", timeout=PATIENCE_S)
    raised.value.close()
    host, _, port = page.address.partition(":")
    with pytest.raises(InvalidConfig, match=f"cannot be served at {page.address}: Address already in use"):
        serve_metrics(session, int(port), host)
    page.stop()
    assert session.streams.listeners == []
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://{page.address}/metrics", timeout=PATIENCE_S)


def test_a_querys_id_stands_for_a_name_that_it_has_not() -> None:
    metrics = QueryMetrics()
    metrics.listener.queries["q2"] = QueryLag("q2", "", 1, 1, 1.0, (QueueLag("t", "b", 0, 1, 1),))
    assert 'penstock_spark_lag{query="q2",topic="t",broker="b",queue="0"} 0' in metrics.text()
