"""The blocks of the guide to events (docs/guide/events.md), typed as printed at one running system with a bridge."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from events.pattern import Pattern
from tests.endtoend.conftest import System
from tests.events.sink import Sink
from tests.guide_blocks import Terminal, typed

PAGE = "docs/guide/events.md"

pytestmark = pytest.mark.endtoend


@pytest.fixture
def api() -> Iterator[Sink]:
    sink = Sink()
    yield sink
    sink.end()


def test_every_block_runs_as_printed(api: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (_, _, start), *others = typed(PAGE)
    setting, _, command = start.partition(" ")
    assert command.startswith("penstock up --events-port 8095")
    monkeypatch.setenv(*setting.split("="))
    system = System(tmp_path / "data", *shlex.split(command.replace("8095", "0"))[2:])
    try:
        system.start()
        words = {"http://127.0.0.1:9000/in": api.url, "127.0.0.1:8095": system.events}
        environ = {"PENSTOCK_SERVER": system.namesrv, "PENSTOCK_MQTT": f"127.0.0.1:{system.mqtt_port}"}
        terminal = Terminal(tmp_path, environ | {"PENSTOCK_EVENTS_ADDRESS": system.events}, words, lambda: None)
        for task, language, text in others:
            if language == "json":
                assert Pattern(json.loads(text))
            else:
                assert language == "sh", f"a block of {language} under {task!r} is not run"
                terminal.type(text)
        assert json.loads(api.wait(1)[0].body) == {"device": "plant/d7/temperature", "celsius": 50}
    finally:
        system.end()
