"""docs/guide/telemetry.ipynb runs from its first cell to its last, in a kernel and a Spark of its own."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

FILE = Path(__file__).parents[2] / "docs" / "guide" / "telemetry.ipynb"
DEFAULT = "127.0.0.1:9876"


@pytest.mark.skipif(not find_spec("nbclient"), reason="nbclient is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::UserWarning")
def test_the_notebook_runs_and_leaves_no_file(cluster: Any, send: Any, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    start = 1_772_366_400
    bodies = [json.dumps({"value": 20 + at % 3, "time": start + 10 * at}).encode() for at in range(30)]
    send("notebook", [*bodies, b"null"], mqtt_topic="telemetry/d7/temperature", key="d7")
    notebook = nbformat.reads(FILE.read_text(), as_version=4)
    assert [cell.outputs for cell in notebook.cells if cell.cell_type == "code" and cell.outputs] == []
    for cell in notebook.cells:
        cell.source = cell.source.replace(DEFAULT, cluster.servers)
        cell.source = cell.source.replace('session("notebook")', 'session("notebook", testing=True)')
        cell.source = cell.source.replace('"subscribe": "telemetry"', '"subscribe": "notebook"')
    there = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=PATIENCE_S, kernel_name="python3", resources=there).execute()
    assert list(tmp_path.iterdir()) == []
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    told = "".join(output.get("text", "") + str(output.get("data", {}).get("text/plain", "")) for output in outputs)
    assert "d7  temperature" in told
    assert "0 gaps, 0 alerts" in told
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert "Traceback" not in told
