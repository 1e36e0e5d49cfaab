"""The log of a process: settings, formats, and its level at run time."""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.errors import InvalidConfig
from penstock.service import config
from penstock.service.process_log import LevelSteps, LogSettings, formatter, obeyed, take_settings


@pytest.fixture
def root_level() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before = root.level
    yield root
    root.setLevel(before)


def record(text: str, *arguments: object, **extra: object) -> logging.LogRecord:
    return logging.getLogger("gateway.door").makeRecord(
        "gateway.door", logging.WARNING, "door.py", 1, text, arguments, None, extra=extra or None
    )


def test_settings_come_from_their_table_and_the_environment_and_the_table_is_taken_out(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('port = 1\n[log]\nlevel = "info"\nformat = "json"\n')
    table, source = config.read_file(file)
    assert take_settings(table, {"PENSTOCK_LOG_LEVEL": "debug"}, source) == LogSettings("debug", "json")
    assert table == {"port": 1}
    given = LogSettings("debug", "json").environment()
    assert take_settings({}, given, source) == LogSettings("debug", "json")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('level = "loud"', "level is 'loud' (it is one of debug, info, warning, error)"),
        ('format = "xml"', "format is 'xml' (it is one of text, json)"),
        ('levl = "info"', "levl is no setting (did you mean 'level'?)"),
    ],
)
def test_a_wrong_setting_is_told_with_its_file_and_line(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(f"port = 1\n[log]\n{line}\n")
    with pytest.raises(InvalidConfig) as wrong:
        take_settings(*config.read_file(file)[:1], {}, config.read_file(file)[1])
    assert str(wrong.value) == f"{file}:3: [log] {said}"


def test_a_line_of_json_is_one_object_whatever_the_message_has_in_it() -> None:
    form = formatter(LogSettings(format="json"), "gateway 1")
    line = form.format(
        record("shut by %r\nand more", "d\u00e91", penstock_fields={"client_id": "d\u00e91", "why": None})
    )
    assert "\n" not in line
    told = json.loads(line)
    assert told.pop("ts").endswith("Z")
    assert told == {
        "level": "warning",
        "logger": "gateway.door",
        "message": "shut by 'd\u00e91'\nand more",
        "process": "gateway 1",
        "client_id": "d\u00e91",
        "why": None,
    }


def test_an_exception_is_part_of_its_line_of_json() -> None:
    one = record("failed")
    try:
        raise ValueError("ours")
    except ValueError:
        one.exc_info = sys.exc_info()
    told = json.loads(formatter(LogSettings(format="json")).format(one))
    assert told["traceback"].endswith("ValueError: ours")
    assert "process" not in told


def test_each_step_shows_more_and_the_last_goes_back_to_the_first(
    root_level: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    steps = LevelSteps("error")
    found = []
    for _ in range(4):
        steps.step()
        found.append(root_level.level)
    assert found == [logging.WARNING, logging.INFO, logging.DEBUG, logging.ERROR]
    assert [one.getMessage() for one in caplog.records] == [
        f"the log is at level {level} now (SIGUSR2)" for level in ("warning", "info", "debug", "error")
    ]


async def test_other_signals_are_passed_on_and_change_no_level(root_level: logging.Logger) -> None:
    async def given() -> AsyncIterator[int]:
        for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGTERM):
            yield number

    steps = LevelSteps("warning")
    passed = [number async for number in obeyed(given(), steps)]
    assert passed == [signal.SIGHUP, signal.SIGUSR2, signal.SIGTERM]
    assert (steps.level, root_level.level) == ("info", logging.INFO)
