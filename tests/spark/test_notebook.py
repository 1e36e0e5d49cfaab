"""docs/guide/telemetry.ipynb: its cells run, in their order, in the shared session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
import pytest

import penstock.spark
from tests.spark.test_history_in_spark import Kept

FILE = Path(__file__).parents[2] / "docs" / "guide" / "telemetry.ipynb"
DEFAULT = "127.0.0.1:9876"


def test_the_cells_of_the_notebook_run(
    spark: Any, cluster: Any, send: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = 1_772_366_400
    bodies = [json.dumps({"value": 20 + at % 3, "time": start + 10 * at}).encode() for at in range(30)]
    send("notebook", [*bodies, b"null"], mqtt_topic="telemetry/d7/temperature", key="d7")
    monkeypatch.setattr(penstock.spark, "session", lambda *_: Kept(spark))
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    cells = [cell for cell in json.loads(FILE.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["outputs"] for cell in cells if cell["outputs"]] == []
    scope: dict[str, Any] = {}
    for cell in cells:
        source = "".join(cell["source"]).replace(DEFAULT, cluster.servers)
        exec(source.replace('"subscribe": "telemetry"', '"subscribe": "notebook"'), scope)
    assert scope["latest"][["device", "metric"]].to_numpy().tolist() == [["d7", "temperature"]]
    assert [line.get_label() for line in scope["axes"].lines] == ["d7 temperature"]
    assert "0 gaps, 0 alerts" in capsys.readouterr().out
    plt.close("all")
