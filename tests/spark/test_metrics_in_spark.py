"""The page of figures over a real stream."""

from __future__ import annotations

import threading
import urllib.request
from pathlib import Path
from typing import Any

from penstock.spark.metrics import serve_metrics
from penstock.spark.progress import LagListener
from tests.patience import PATIENCE_S


def test_a_stream_shows_its_rows_and_its_lag(spark: Any, cluster: Any, send: Any, tmp_path: Path) -> None:
    send("watched", [b"%d" % at for at in range(100)])
    page, done = serve_metrics(spark), threading.Event()
    # Told after the page's own listener: what it has heard is on the page.
    after = LagListener(lambda lag: done.set() if lag.rows and lag.lag == 0 else None)
    spark.streams.addListener(after)
    given = {"servers": cluster.servers, "subscribe": "watched", "startingOffsets": "earliest"}
    reader = spark.readStream.format("penstock").options(**given, maxOffsetsPerTrigger="60")
    writer = reader.load().writeStream.format("noop").queryName("watched").option("checkpointLocation", str(tmp_path))
    query = writer.start()
    try:
        assert done.wait(PATIENCE_S)
        with urllib.request.urlopen(f"http://{page.address}/metrics", timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
    finally:
        query.stop()
        spark.streams.removeListener(after)
        page.stop()
    assert 'penstock_spark_rows_total{query="watched"} 100' in lines
    lags = [line for line in lines if line.startswith('penstock_spark_lag{query="watched",topic="watched"')]
    assert len(lags) == 4
    assert all(line.endswith(" 0") for line in lags)
