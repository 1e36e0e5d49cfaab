from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

import broker
from broker.kernel.outcomes import AfterQuorum, AfterSync, Now, after_level
from broker.store.level import Level
from penstock.protocol.requests.request import Done

ROOT = Path(broker.__file__).parent


def calls(name: str) -> set[str]:
    """Modules of the broker that call a method of this name."""
    return {module for module, called in all_calls() if called == name}


@functools.cache
def all_calls() -> frozenset[tuple[str, str]]:
    return frozenset(
        (path.relative_to(ROOT).as_posix(), node.func.attr)
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    )


@pytest.mark.parametrize("mark", ["mark_durable", "mark_committed"])
def test_only_the_flusher_and_the_office_of_a_group_move_the_marks_of_a_running_broker(mark: str) -> None:
    """The office passes on to the log what the flusher tells it, and what its group has committed."""
    of_a_log = {path for path in calls(mark) if path.startswith(("store/", "replica/"))}
    assert calls(mark) - of_a_log == {"net/flusher.py", "net/office.py"}
    assert calls("reached") == {"net/flusher.py", "net/office.py"}


@pytest.mark.parametrize(("level", "kind"), [(Level.CACHE, Now), (Level.DISK, AfterSync), (Level.QUORUM, AfterQuorum)])
def test_an_append_is_answered_when_its_weakest_message_has_its_level(level: Level, kind: type) -> None:
    outcome = after_level(level, Done(), 7)
    assert type(outcome) is kind
    assert outcome.result == Done()
    assert getattr(outcome, "point", 7) == 7


def test_only_dispatch_takes_outcomes_and_only_it_parks() -> None:
    assert calls("handle") == {"net/dispatch.py"}
    assert calls("park") == {"net/dispatch.py"}
