"""Tables for people, JSON lines for programs."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from penstock.cli.display import body_text, confirm, line_text, print_rows, shown
from penstock.errors import InvalidConfig

ROWS = [
    {"name": "a", "count": 12_345, "queues": ["x", "y"], "gone": None},
    {"name": "b" * 90, "count": 1, "queues": [], "gone": None},
]


def test_json_has_everything_on_one_line_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, ("name",), as_json=True)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


def test_a_table_cuts_nothing_off_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, ("name", "count", "queues", "gone"), as_json=False)
    out = capsys.readouterr().out
    assert "b" * 90 in out
    assert "12,345" in out
    assert "x, y" in out
    assert "\x1b" not in out


def test_nothing_is_said_to_people_and_not_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], ("name",), as_json=False, empty="no topics yet")
    print_rows([], ("name",), as_json=True)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "(no topics yet)\n")


def test_bodies_are_text_where_they_can_be() -> None:
    assert body_text("grün".encode()) == ("grün", "utf-8")
    assert body_text(b"\xff") == ("/w==", "base64")


def test_no_body_reaches_the_terminal_with_what_commands_it() -> None:
    assert line_text("grün".encode()) == "grün"
    assert line_text(b"a\x1b[31mred\nb\x00") == "a\\x1b[31mred\\nb\\x00"
    assert line_text(b"\xff") == "/w=="
    assert (line_text(b"abcdef", 6), line_text(b"abcdefg", 6)) == ("abcdef", "abcdef... (7 bytes)")


def test_names_that_strangers_have_given_are_neither_markup_nor_commands(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["[/a]", "[red]hidden[/red]", "a\x1b[2J", "x\u202ey", "grün"]
    print_rows([{"name": name} for name in names], ("name",), as_json=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["name", "[/a]", "[red]hidden[/red]", "a\\x1b[2J", "x\\u202ey", "grün"]
    assert [shown(name) for name in names] == lines[1:]


@pytest.mark.parametrize(("said", "goes_on"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_only_a_yes_goes_on(said: str, goes_on: bool) -> None:
    @click.command()
    def command() -> None:
        confirm("Sure?", "all stays")
        click.echo("done")

    result = CliRunner().invoke(command, input=said)
    assert (result.stdout == "done\n") == goes_on
    assert goes_on or isinstance(result.exception, InvalidConfig)
