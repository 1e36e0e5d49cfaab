"""docs/guide/backend.md: every block runs, in the order of the page, against real servers."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.guide_blocks import Terminal, typed

PAGE = "docs/guide/backend.md"
DEFAULT = "127.0.0.1:9876"


@pytest.mark.endtoend
@pytest.mark.slow
def test_every_block_of_the_guide_runs(real_cluster: Any, tmp_path: Path) -> None:
    environ = {"PENSTOCK_SERVER": real_cluster.servers, "PYTHONWARNINGS": "error"}
    terminal = Terminal(tmp_path, environ, {DEFAULT: real_cluster.servers}, lambda: None)
    shown: list[str] = []
    for task, language, text in typed(PAGE):
        if language == "python":
            assert f'SERVERS = "{DEFAULT}"' in text
            (tmp_path / "program.py").write_text(terminal.own(text))
            shown.append(terminal.type(f"{sys.executable} program.py"))
        else:
            assert language == "sh", f"a block of {language} under {task!r} is not run"
            shown.append(terminal.type(text))
    said = "\n".join(shown)
    assert "1000 stored" in said
    assert "1001 messages until now" in said
    assert "telemetry has it" in said
    assert "5 of 10 are wanted" in said
    assert "10 charges are done, the last one is b'3'" in said
    assert "host-2 has [b'10.00']" in said
    assert "10 pictures went to the handler" in said
    assert "b'one' is printed, attempt 1" in said
    assert "stored, on the disk" in said
    assert "not stored a topic's name is one level" in said
    assert "cancelled" in said
    assert "both messages are rolled back" in said
    assert "0 transactions were checked" in said
    assert "True for all parcels: reserved, paid, shipped" in said
    assert re.search(r"^save \[(0, )*1(, 0)*\]$", said, re.MULTILINE)
    assert "the sum is 5" in said
    assert "billing" in said
    assert "traced: b'new'" in said
