from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from loadtest.replica import following, run


@pytest.mark.endtoend
@pytest.mark.slow
@pytest.mark.long
def test_all_rows_are_measured() -> None:
    out = io.StringIO()
    assert run(Console(file=out, width=120), 1, 0.5, 4 << 20, 200, 20) == 0
    many = ("level disk", "level quorum", "single message", "is sent 4 MiB")
    for part in (*many, "whole copy", "next PUBACK", "made its service"):
        assert part in out.getvalue()


def test_a_follower_takes_what_its_leader_has_appended(tmp_path: Path) -> None:
    (row,) = following(tmp_path / "follow")
    assert row.value > 0
