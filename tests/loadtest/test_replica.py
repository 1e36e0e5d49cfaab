from __future__ import annotations

import io

import pytest
from rich.console import Console

from loadtest.replica import run


@pytest.mark.endtoend
@pytest.mark.slow
def test_all_rows_are_measured() -> None:
    out = io.StringIO()
    assert run(Console(file=out, width=120), 1, 0.5, 4 << 20) == 0
    for part in ("level disk", "level quorum", "single message", "copies 4 MiB", "next PUBACK"):
        assert part in out.getvalue()
