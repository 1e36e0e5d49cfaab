from __future__ import annotations

import ast
from pathlib import Path

import broker

ROOT = Path(broker.__file__).parent


def calls(name: str) -> set[str]:
    """Modules of the broker that call a method of this name."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
    }


def test_only_the_flusher_moves_the_durable_mark_of_a_running_broker() -> None:
    inside_the_store = {path for path in calls("mark_durable") if path.startswith("store/")}
    assert calls("mark_durable") - inside_the_store == {"flusher.py"}
    assert calls("durable_at") == {"flusher.py"}


def test_only_dispatch_takes_outcomes_and_only_it_parks() -> None:
    assert calls("handle") == {"dispatch.py"}
    assert calls("park") == {"dispatch.py"}
