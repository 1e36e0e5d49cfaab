"""What every command shares: help, the server's address, errors, exit status."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner, Result

from penstock.cli.root import root, status_of
from penstock.errors import (
    GroupNotFound,
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    NoRoute,
    PenstockError,
    QueueNotFound,
    TimedOut,
    TopicNotFound,
    Unavailable,
)
from penstock.protocol.message import IS_COMPILED
from penstock.version import VERSION


def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def commands() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name in ("topic", "produce", "consume", "group"):
        command = root.get_command(click.Context(root), name)
        subs = command.commands if isinstance(command, click.Group) else {}
        found += [(name, sub) for sub in subs] or [(name,)]
    return found


def test_nobody_there_says_what_was_tried_and_what_to_start() -> None:
    server = nobody()
    result = CliRunner().invoke(root, ["--server", server, "topic", "list"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert f"error: no name server answers: no server at {server}: connection refused" in result.stderr
    assert "penstock up" in result.stderr


def test_with_json_errors_are_json_too() -> None:
    result = CliRunner().invoke(root, ["--server", nobody(), "topic", "list", "--json"])
    error = json.loads(result.stderr)
    assert (error["error"], error["code"]) == ("Unavailable", 6)
    assert "penstock up" in error["hint"]


def test_the_server_comes_from_the_environment() -> None:
    server = nobody()
    result = CliRunner(env={"PENSTOCK_SERVER": server}).invoke(root, ["group", "list"])
    assert server in result.stderr


def test_a_wrong_address_says_how_to_write_it() -> None:
    result = CliRunner().invoke(root, ["--server", "nowhere", "topic", "list"])
    assert result.exit_code == 2
    assert "write host:port" in result.stderr


def test_wrong_use_is_status_2() -> None:
    assert CliRunner().invoke(root, ["topic", "paint"]).exit_code == 2


@pytest.mark.parametrize(
    ("error", "status"),
    [
        *((kind(""), 2) for kind in (InvalidConfig, InvalidRequest, InvalidTopic)),
        *((kind(""), 3) for kind in (NoRoute, GroupNotFound, TopicNotFound, QueueNotFound)),
        (TimedOut(""), 5),
        (Unavailable(""), 1),
    ],
)
def test_each_kind_of_failure_has_its_status(error: PenstockError, status: int) -> None:
    assert status_of(error) == status


def test_an_interrupt_is_status_130() -> None:
    @root.command("interrupted")
    def interrupted() -> None:
        raise KeyboardInterrupt

    try:
        assert CliRunner().invoke(root, ["interrupted"]).exit_code == 130
    finally:
        del root.commands["interrupted"]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_examples_and_json(command: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(root, [*command, "--help"]).stdout
    assert f"penstock {' '.join(command)}" in shown
    assert "--json" in shown


def test_help_loads_no_event_loop_and_no_table_library() -> None:
    code = (
        "import sys\n"
        "from penstock.cli.root import root\n"
        "root(['--help'], standalone_mode=False)\n"
        "print(sorted({'trio', 'anyio', 'asyncio', 'rich', 'numpy'} & sys.modules.keys()))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.endswith("[]\n")


def test_the_version_is_told_and_whether_the_hot_modules_are_compiled(penstock: Callable[..., Result]) -> None:
    kind = "compiled" if IS_COMPILED else "not compiled"
    assert penstock("--version").stdout == f"penstock, version {VERSION} ({kind})\n"


@pytest.mark.parametrize("talk", ["click.echo('x')", "sys.stdout.buffer.write(b'x')"], ids=["at once", "at the end"])
def test_output_that_cannot_be_written_is_one_error(talk: str) -> None:
    code = (
        "import click, sys\n"
        "from penstock.cli.root import root\n"
        "@root.command('talk')\n"
        f"def talk(): {talk}\n"
        "root(['talk'])"
    )
    with open("/dev/full", "wb") as full:
        result = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (1, "error: input or output failed: No space left on device\n")


def test_a_reader_that_has_enough_is_no_error() -> None:
    code = (
        "import click\n"
        "from penstock.cli.root import root\n"
        "@root.command('talk')\n"
        "def talk():\n"
        "    while True: click.echo('x' * 10_000)\n"
        "root(['talk'])"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as talking:
        assert talking.stdout is not None
        assert talking.stderr is not None
        talking.stdout.read(1)
        talking.stdout.close()
        said = talking.stderr.read()
    assert (talking.returncode, said) == (0, b"")


@pytest.mark.parametrize(
    "arguments",
    [("topic", "show", "--json"), ("top", "--every", "0", "--json"), ("consume", "orders", "--json", "-g", "")],
)
def test_with_json_a_command_that_cannot_be_understood_is_told_in_json(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(root, ["--server", nobody(), *arguments])
    assert (result.exit_code, json.loads(result.stderr)["error"]) == (2, "InvalidConfig")
    assert "Usage: " in CliRunner().invoke(root, [one for one in arguments if one != "--json"]).stderr


def test_a_question_without_an_answer_has_its_line_to_itself() -> None:
    result = CliRunner().invoke(root, ["client", "disconnect", "d7"])
    assert result.stderr.splitlines() == [
        "Disconnect d7? [y/N]: ",
        "error: d7 stays connected",
        result.stderr.splitlines()[-1],
    ]


def test_a_command_imports_no_other_command() -> None:
    code = "import sys, node.command; from click.testing import CliRunner; from penstock.cli.root import root\n"
    code += "assert CliRunner().invoke(root, ['topic', '--help']).exit_code == 0\n"
    code += "print([name for name in ('numpy', 'trio', 'penstock.cli.sql', 'broker') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
