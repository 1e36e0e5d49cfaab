"""How a service process begins and ends, the same for all: log, limits, settings, ready line, signals, one line for an
expected error.

``python -m broker --config FILE`` and its siblings are calls of ``main``. A service that accepts prints
``ready ROLE=HOST:PORT`` on standard output, with ``status=HOST:PORT`` behind it where it has status pages of its own
and ``mqtt-NAME=HOST:PORT`` for each further listener of a gateway; SIGTERM and Ctrl-C end it with status 0; an expected
error is one line on standard error and status 2. Status pages open before all else, and then a line ``starting ROLE
status=HOST:PORT`` stands before the other.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar, cast

import trio

from penstock.errors import InternalError, PenstockError
from penstock.protocol.addresses import join_address
from penstock.service import config, descriptors, memory, process_log
from penstock.service.process_log import LEVEL_SIGNAL, USUAL, LevelSteps, LogSettings
from penstock.service.readiness import STOPPING, ReadFigures, Readiness, ReadReasons
from penstock.world import real_world

STATUS_EXPECTED_ERROR: Final = 2
STOP_S: Final = 4.0
"""After this long a stop is forced, so that a stop never takes longer than 5 seconds."""

CHILD_VARIABLE: Final = "PENSTOCK_CHILD"
"""In the environment of a process that ends with its parent (``node/processes.py``): what that calls it."""


class ServiceSettings(Protocol):
    """Settings of a service's status pages: where they are; a port of -1 for none, 0 for any free one. They
    are checked here, as they are used."""

    @property
    def status_host(self) -> str: ...

    @property
    def status_port(self) -> int: ...

    @property
    def status_hosts(self) -> tuple[str, ...]: ...


Settings = TypeVar("Settings", bound=ServiceSettings)


class Running(Protocol):
    """Report of a service through ``task_status`` when it accepts connections: where, its figures, and its reasons
    not to send traffic there."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def figures(self) -> ReadFigures: ...

    @property
    def reasons(self) -> ReadReasons: ...


RunService = Callable[..., Awaitable[None]]
"""``run(settings, world, tell, *, task_status)``: a service's server; it tells in words what its start is doing."""


def operator_signals() -> tuple[signal.Signals, ...]:
    """The signals of an operator to a gateway: SIGUSR1 drains it, SIGHUP has it read its files again. In a terminal
    SIGHUP means that the terminal is gone and ends the process, as ever."""
    is_interactive = sys.stdin is not None and sys.stdin.isatty()
    return (signal.SIGUSR1,) if is_interactive else (signal.SIGUSR1, signal.SIGHUP)


def main(role: str, settings_class: type[Settings], run: RunService, arguments: list[str] | None = None) -> int:
    """Runs one service until a signal; returns the exit status."""
    gc.enable()
    parser = argparse.ArgumentParser(prog=f"python -m {role}", description=f"The Penstock {role}.")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as TOML (docs/guide/settings.md)")
    options = parser.parse_args(arguments)

    try:
        settings, log = _load(settings_class, options.config, f"PENSTOCK_{role.upper()}")
    except PenstockError as error:
        print(f"error: {error.told}", file=sys.stderr, flush=True)
        return STATUS_EXPECTED_ERROR

    async def serve(stop: trio.Event) -> None:
        readiness = Readiness()
        async with trio.open_nursery() as pages:
            status = await _open_pages(settings, readiness, pages)
            if status:
                say(f"starting {role} status={status}")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_end, stop, readiness, nursery.cancel_scope)
                running = cast(Running, await nursery.start(partial(run, settings, real_world(), readiness.begin)))
                readiness.add(running.figures, running.reasons)
                also = f" status={status}" if status else ""
                also += "".join([f" mqtt-{name}={at}" for name, at in getattr(running, "listeners", {}).items()])
                memory.settle()
                readiness.serves()
                say(f"ready {role}={join_address(running.host, running.port)}{also}")
            pages.cancel_scope.cancel()

    return run_until_signal(serve, log)


def _load(settings_class: type[Settings], file: Path | None, prefix: str) -> tuple[Settings, LogSettings]:
    """The settings of a service, and those of its log."""
    table, source = config.read_file(file)
    faults, log = config.Faults(), USUAL
    with faults.collected():
        log = process_log.take_settings(table, os.environ, source)
    with faults.collected():
        settings = config.load_table(settings_class, table, os.environ, prefix, source=source)
    faults.raise_all()
    return settings, log


def say(line: str) -> None:
    """Tells the process that started this one; it may have ended."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the end of the process tells of it again


async def _end(stop: trio.Event, readiness: Readiness, service: trio.CancelScope) -> None:
    """Ends a service when it is to stop, also in the middle of its start."""
    await stop.wait()
    readiness.begin(STOPPING)
    service.cancel()


async def _open_pages(settings: ServiceSettings, readiness: Readiness, nursery: trio.Nursery) -> str:
    """Opens the status pages, and returns where; empty where there are to be none."""
    if settings.status_port < 0:
        return ""
    from penstock.service.status import pages_access, serve_status  # the HTTP server is loaded only where it is used

    where, told = (settings.status_host, settings.status_port), (readiness.figures, readiness.reasons)
    access = pages_access(settings, settings.status_host, real_world())
    return cast(str, await nursery.start(partial(serve_status, *where, *told, settings.status_hosts, access)))


def run_until_signal(serve: Callable[[trio.Event], Awaitable[None]], log: LogSettings = USUAL) -> int:
    """Runs ``serve`` until it returns; SIGTERM or SIGINT sets the event that it is given, and it then stops in order.
    ``log``: what is logged on standard error. The process may have as many files and sockets open as the system lets
    it.

    Returns the exit status, having told of an expected error.
    """
    process_log.begin(log, os.environ.get(CHILD_VARIABLE, ""))
    memory.bound_heap()
    descriptors.raise_limit()

    async def watched() -> None:
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(_obey, stop, LevelSteps(log.level))
            nursery.start_soon(memory.give_back)
            if os.environ.get(CHILD_VARIABLE):
                nursery.start_soon(_set_when_orphaned, stop)
            await serve(stop)
            nursery.cancel_scope.cancel()

    try:
        with _ignored(operator_signals()):  # a gateway hears them; of other services they ask nothing
            trio.run(watched)
    except BaseExceptionGroup as group:
        error = expected_error(group)
        if error is None:
            raise
        print(f"error: {error.told}", file=sys.stderr, flush=True)
        return STATUS_EXPECTED_ERROR
    finally:
        _end_stop()
    return 0


@contextlib.contextmanager
def _ignored(numbers: Iterable[signal.Signals]) -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _obey(stop: trio.Event, steps: LevelSteps, *, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, LEVEL_SIGNAL) as signals:
        task_status.started()
        async for number in process_log.obeyed(signals, steps):
            if number != LEVEL_SIGNAL:
                _begin_stop(stop)


def _begin_stop(stop: trio.Event) -> None:
    """Ends the process after ``STOP_S``, however many signals follow."""
    if not signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.signal(signal.SIGALRM, _stop_by_force)
        signal.setitimer(signal.ITIMER_REAL, STOP_S)
    stop.set()


def _end_stop() -> None:
    """The stop is done. While the interpreter ends, Python has taken its handlers back, and SIGALRM would kill."""
    if signal.getsignal(signal.SIGALRM) is _stop_by_force:
        signal.setitimer(signal.ITIMER_REAL, 0)


async def _set_when_orphaned(stop: trio.Event) -> None:
    """A child's standard input is a pipe that its parent holds open: its end means that the parent is gone. What the
    child does just then, recovering a log for example, must not keep the port and the data folder from the next one."""
    await trio.lowlevel.wait_readable(sys.stdin.fileno())
    _begin_stop(stop)


def _stop_by_force(*_: object) -> None:
    """The clean stop takes too long. Acknowledged messages are on the disk, so nothing is lost by ending here."""
    with contextlib.suppress(OSError):  # an orphan's output is closed
        print("stopped by force: the clean stop took too long", file=sys.stderr, flush=True)
    os._exit(0)


def expected_error(group: BaseExceptionGroup[BaseException]) -> PenstockError | None:
    """The Penstock error that a group stands for, if every leaf is one; our own mistakes are not expected."""
    penstock, rest = group.split(PenstockError)
    if penstock is None or rest is not None:
        return None
    leaf: BaseException = penstock
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    return leaf if isinstance(leaf, PenstockError) and not isinstance(leaf, InternalError) else None
