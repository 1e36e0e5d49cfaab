"""A real standalone cluster of a master and two workers whose Python has no Penstock: a job comes by ``spark-submit``
with the archive that ``penstock spark package`` writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from outside import Standalone

from penstock.cli.root import root

COUNT = 2000


@pytest.fixture
def standalone(tmp_path: Path, bare_python: Path) -> Iterator[Standalone]:
    running = Standalone(tmp_path, bare_python)
    yield running
    running.stop()


@pytest.mark.long
def test_totals_are_right_on_two_executors_also_when_one_is_killed_amid_a_stream(
    standalone: Standalone, cluster: Any, send: Any, tmp_path: Path
) -> None:
    send("submitted", [b"%d" % at for at in range(COUNT)])
    archive = tmp_path / "penstock.zip"
    assert CliRunner().invoke(root, ["spark", "package", str(archive)]).exit_code == 0
    job = Path(__file__).with_name("submitted.py")
    ran = standalone.submit(job, cluster.servers, "submitted", str(tmp_path), archive=archive)
    assert ran.returncode == 0, ran.stderr[-4000:]
    told = {name: rest for name, *rest in map(json.loads, ran.stdout.splitlines())}
    home, master = told["from"]
    assert archive.name in home
    assert master == standalone.url
    assert len(told["batch"][1]) == 2  # both executors read
    for name in ("batch", "stream"):
        assert told[name][0] == list(range(COUNT)), name
    assert (tmp_path / "killed").exists()
    assert told["batches"][0] >= 2
