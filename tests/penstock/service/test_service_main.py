from __future__ import annotations

import contextlib
import gc
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from penstock.errors import AddressInUse, InternalError
from penstock.service import common_settings as common
from penstock.service.process_log import LogSettings
from penstock.service.service_main import expected_error, main, operator_signals, run_until_signal
from penstock.service.setting import check_bounds
from tests.patience import PATIENCE_S


def test_a_penstock_error_in_nested_groups_is_expected() -> None:
    error = AddressInUse("taken")
    assert expected_error(ExceptionGroup("", [ExceptionGroup("", [error])])) is error


@pytest.mark.parametrize("leaf", [ValueError("ours"), InternalError("ours too")])
def test_our_own_mistakes_are_not_expected(leaf: Exception) -> None:
    assert expected_error(ExceptionGroup("", [leaf])) is None


def test_a_group_with_a_mistake_beside_an_expected_error_is_a_mistake() -> None:
    assert expected_error(ExceptionGroup("", [AddressInUse("taken"), ValueError("ours")])) is None


def test_an_expected_error_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    async def serve(_stop: trio.Event) -> None:
        raise AddressInUse("127.0.0.1:1 is already in use", hint="choose another port")

    assert run_until_signal(serve) == 2
    assert capsys.readouterr().err == "error: 127.0.0.1:1 is already in use (choose another port)\n"


def test_a_service_logs_with_time_level_and_logger(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def serve(_stop: trio.Event) -> None:
        logging.getLogger("gateway.door").warning("shut")
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    assert run_until_signal(serve) == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:,]+ WARNING gateway.door: shut\n", capsys.readouterr().err)


def test_of_several_processes_of_a_service_each_line_says_of_which_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def serve(_stop: trio.Event) -> None:
        logging.getLogger("gateway.door").warning("shut")
        await trio.lowlevel.checkpoint()

    silent, parent = os.pipe()  # which holds it open
    with open(silent) as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        for who, named in {"gateway 1": "gateway.door of gateway 1", "broker": "gateway.door"}.items():
            monkeypatch.setattr(logging.getLogger(), "handlers", [])
            monkeypatch.setenv("PENSTOCK_CHILD", who)
            assert run_until_signal(serve) == 0
            assert capsys.readouterr().err.endswith(f" WARNING {named}: shut\n")
    os.close(parent)


def test_a_service_that_returns_ends_with_status_0() -> None:
    async def serve(_stop: trio.Event) -> None:
        await trio.lowlevel.checkpoint()

    assert run_until_signal(serve) == 0


def test_a_mistake_of_ours_is_not_hidden() -> None:
    async def serve(_stop: trio.Event) -> None:
        raise ValueError("ours")

    with pytest.raises(BaseExceptionGroup) as raised:
        run_until_signal(serve)
    assert raised.group_contains(ValueError, match="ours")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_hangup_is_an_operators_word_only_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    class Input(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    monkeypatch.setattr(sys, "stdin", Input())
    assert (signal.SIGHUP in operator_signals()) != is_terminal
    assert signal.SIGUSR1 in operator_signals()


@dataclass(frozen=True)
class Nothing:
    """Settings of a service without any of its own."""

    status_host: str = common.status_host()
    status_port: int = common.status_port()
    status_hosts: tuple[str, ...] = common.status_hosts()

    def __post_init__(self) -> None:
        check_bounds(self)


class Running:
    """A service that accepts."""

    host, port = "127.0.0.1", 7

    def figures(self) -> dict[str, float]:
        return {"a": 1.0}

    def reasons(self) -> list[str]:
        return ["of its own"]


Tell = Callable[[str], None]


@pytest.mark.parametrize("port", [-2, 65_536])
def test_a_status_port_that_is_none_is_one_clear_error(
    port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(*_: object, task_status: trio.TaskStatus[Any]) -> None:
        raise AssertionError("it has begun")

    monkeypatch.setenv("PENSTOCK_BROKER_STATUS_PORT", str(port))
    assert main("broker", Nothing, run, []) == 2
    told = f"error: PENSTOCK_BROKER_STATUS_PORT: status_port is {port} (it is from -1 to 65535)\n"
    assert capsys.readouterr().err == told


@pytest.mark.usefixtures("thawed")
def test_a_service_settles_before_it_says_that_it_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    said = []

    async def run(settings: Nothing, world: object, tell: Tell, task_status: trio.TaskStatus[Any]) -> None:
        task_status.started(Running())
        with trio.fail_after(PATIENCE_S):
            while not said:
                if gc.get_freeze_count():
                    said.append(capsys.readouterr().out)
                await trio.lowlevel.checkpoint()
        raise AddressInUse("enough")

    assert main("broker", Nothing, run, []) == 2
    assert said == ["ready broker=127.0.0.1:7\n"]


@pytest.mark.endtoend
@pytest.mark.usefixtures("thawed")
def test_status_pages_are_there_while_a_service_starts_and_say_what_it_is_doing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_BROKER_STATUS_PORT", "0")
    seen = []

    async def run(settings: Nothing, world: object, tell: Tell, task_status: trio.TaskStatus[Any]) -> None:
        tell("recovering the log")
        first = capsys.readouterr().out
        [at] = re.findall(r"starting broker status=(\S+)\n", first)
        seen.extend([await page(at, "/livez"), await page(at, "/readyz")])
        task_status.started(Running())
        with trio.fail_after(PATIENCE_S):
            while not (second := capsys.readouterr().out):
                await trio.lowlevel.checkpoint()
        seen.extend([second == f"ready broker=127.0.0.1:7 status={at}\n", await page(at, "/readyz")])
        seen.append("\na 1\n" in (await page(at, "/metrics"))[1])
        raise AddressInUse("enough")

    assert main("broker", Nothing, run, []) == 2
    assert seen == [(200, "ok\n"), (503, "recovering the log\n"), True, (503, "of its own\n"), True]


SERVICE = """
import sys, time
from dataclasses import dataclass
import trio
from penstock.service import service_main

@dataclass
class Nothing:
    status_host: str = "127.0.0.1"
    status_port: int = 0
    status_hosts: tuple[str, ...] = ()

async def run(settings, world, tell, task_status):
    if sys.argv[1] == "blocked":
        await trio.to_thread.run_sync(time.sleep, 600)
    else:
        await trio.sleep_forever()

service_main.STOP_S = float(sys.argv[2])
sys.exit(service_main.main("broker", Nothing, run, []))
"""


@contextlib.contextmanager
def starting(how: str, stop_s: float, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A service that does not get beyond its start, as a process of its own that has said so."""
    command, pipe = [sys.executable, "-c", SERVICE, how, str(stop_s)], subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=os.environ | environ
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("starting broker status=127.0.0.1:")
            yield process
        finally:
            process.kill()


@pytest.mark.endtoend
def test_a_signal_breaks_off_a_start() -> None:
    with starting("waiting", 60) as process:
        process.terminate()
        assert process.communicate(timeout=PATIENCE_S) == ("", "")
        assert process.returncode == 0


@pytest.mark.endtoend
def test_a_start_that_nothing_breaks_off_is_ended_by_force() -> None:
    with starting("blocked", 0.1) as process:
        process.terminate()
        assert process.communicate(timeout=PATIENCE_S) == ("", "stopped by force: the clean stop took too long\n")
        assert process.returncode == 0


@pytest.mark.endtoend
def test_a_child_whose_parent_is_gone_does_not_begin_what_it_was_starting() -> None:
    with starting("blocked", 0.1, PENSTOCK_CHILD="1") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stderr.close()  # as of a parent that was killed
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


async def page(address: str, path: str) -> tuple[int, str]:
    host, _, port = address.rpartition(":")
    with trio.fail_after(PATIENCE_S):
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            said = b"".join([part async for part in stream]).decode()
    head, _, body = said.partition("\r\n\r\n")
    return int(head.split()[1]), body


def test_a_service_to_which_an_operators_signal_means_nothing_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    before = signal.getsignal(signal.SIGHUP)
    came_to = []

    async def serve(stop: trio.Event) -> None:
        for number in (signal.SIGHUP, signal.SIGUSR1):
            os.kill(os.getpid(), number)
        await trio.lowlevel.checkpoint()
        came_to.append("the end")

    assert run_until_signal(serve) == 0
    assert came_to == ["the end"]
    assert signal.getsignal(signal.SIGHUP) == before


def test_a_child_that_nobody_listens_to_any_more_says_so_without_a_traceback() -> None:
    script = "from penstock.service.service_main import say; say('ready'); say('steady')"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", script], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


AFTER_A_STOP = """
import os, signal, trio
from penstock.service.service_main import run_until_signal

async def serve(stop):
    os.kill(os.getpid(), signal.SIGTERM)
    await stop.wait()
    print(signal.getitimer(signal.ITIMER_REAL)[0] > 0)

print(run_until_signal(serve), signal.getitimer(signal.ITIMER_REAL)[0])
"""


@pytest.mark.endtoend
def test_the_deadline_of_a_stop_is_over_when_the_stop_is_done() -> None:
    done = subprocess.run([sys.executable, "-c", AFTER_A_STOP], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout, done.stderr) == ("True\n0 0.0\n", "")


@pytest.mark.usefixtures("thawed")
@pytest.mark.parametrize("level", ["", "loud", "WARNING"])
def test_a_level_of_the_log_that_is_none_is_one_clear_error(
    level: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(*_: object, task_status: trio.TaskStatus[Any]) -> None:
        raise AssertionError("it has begun")

    monkeypatch.setenv("PENSTOCK_LOG_LEVEL", level)
    assert main("broker", Nothing, run, []) == 2
    assert capsys.readouterr().err == (
        f"error: PENSTOCK_LOG_LEVEL: level is {level!r} (it is one of debug, info, warning, error)\n"
    )


@pytest.mark.usefixtures("thawed")
@pytest.mark.parametrize(("level", "shown"), [("info", 20), ("warning", 30), ("error", 40), (None, 30)])
def test_the_log_shows_lines_from_its_level_on(level: str | None, shown: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(logging, "basicConfig", lambda *, handlers, level: given.append(level))
    if level is not None:
        monkeypatch.setenv("PENSTOCK_LOG_LEVEL", level)

    async def run(*_: object, task_status: trio.TaskStatus[Any]) -> None:
        raise AddressInUse("enough")

    assert main("broker", Nothing, run, []) == 2
    assert [logging.getLevelNamesMapping()[one] for one in given] == [shown]


@pytest.mark.usefixtures("thawed")
def test_a_signal_shows_more_of_the_log_of_a_service_that_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    log = logging.getLogger("gateway.door")

    async def serve(_stop: trio.Event) -> None:
        log.info("not shown")
        os.kill(os.getpid(), signal.SIGUSR2)
        with trio.fail_after(PATIENCE_S):
            while not log.isEnabledFor(logging.INFO):
                await trio.lowlevel.checkpoint()
        log.info("open")

    assert run_until_signal(serve, LogSettings(format="json")) == 0
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(one["level"], one["message"]) for one in told] == [
        ("warning", "the log is at level info now (SIGUSR2)"),
        ("info", "open"),
    ]
