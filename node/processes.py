"""The services as child processes: `penstock up --processes`.

Each child is the service's own ``python -m SERVICE`` with its settings in the environment. A child that dies is started
again on the same port (a broker then recovers its log), after growing pauses; one that keeps dying ends the whole
system with an error, unless it is one of several gateways: the others serve, and it is tried again now and then. No
child outlives this process: each holds the other end of a pipe and stops when it closes.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import trio

from node import child_status
from node.addresses import Addresses
from node.services import console_server, events_server, refuse_taken_ports, service_settings
from node.settings import Configuration, console_may_act, for_child, gateway_name, listeners, place, with_ports
from penstock.errors import Unavailable
from penstock.service import footprint
from penstock.service.cluster_secret import keep_secret
from penstock.service.process_log import LEVEL_SIGNAL, USUAL, LogSettings
from penstock.service.readiness import STARTING, STOPPING
from penstock.service.service_main import CHILD_VARIABLE
from penstock.service.status import pages_access, serve_status
from penstock.world import World

RESTARTS_MAX: Final = 5
RESTART_WINDOW_S: Final = 60.0
AGAIN_S: Final = 30.0
"""One of several gateways that keeps dying is started again after this time."""
START_S: Final = 60.0
"""A child gets this long to say that it starts, or that it is ready where it has no status pages."""
STOP_S: Final = 3.0
"""A child gets this long to end by itself; then it is killed."""

_log = logging.getLogger(__name__)


class Child:
    """One service process, started again when it dies.

    Args:
        service: ``namesrv``, ``broker`` or ``gateway``: the package that is run.
        settings: what the process is given, by setting name; ports of 0 are fixed by the first start.
        number: which of several of the service it is.
        log: level and format of its log.

    Attributes:
        who: what its lines in the log, and those about it, call it.
    """

    def __init__(
        self,
        service: str,
        settings: Mapping[str, Any],
        world: World,
        number: int | None = None,
        log: LogSettings = USUAL,
    ) -> None:
        self.service = service
        self._others_serve = number is not None
        self.who = service if number is None else f"{service} {number}"
        self.address = ""
        self.status = ""
        self.listeners: dict[str, str] = {}
        self._settings = dict(settings)
        self._log = log
        self._clock = world.clock
        self._starts: list[float] = []
        self._stopping = False
        self._process: trio.Process | None = None

    async def run(self, *, task_status: trio.TaskStatus[str]) -> None:
        """Keeps the process running until cancelled; reports its address once it is ready the first time."""
        while not self._stopping:
            await self._hold_back()
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", self.service],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | self._environment() | self._log.environment() | {CHILD_VARIABLE: self.who},
                start_new_session=True,  # Ctrl-C in the terminal reaches the parent alone, which stops in order
            )
            self._process = process
            try:
                said = await self._wait_until_ready(process)
                if said:
                    self._take_ready_line(said)
                if said and not self.address:
                    self.address = said.split()[0]
                    task_status.started(self.address)
                status = await process.wait()
                self.status = ""
                _log.warning("the %s process ended with status %s; starting it again", self.who, status)
            finally:
                with trio.CancelScope(shield=True):
                    await self._end(process)
            await trio.sleep(0.1 * 2 ** len(self._starts))

    def send_signal(self, number: signal.Signals) -> None:
        """Sends the process a signal, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def _hold_back(self) -> None:
        """Waits, or raises ``Unavailable``, where it has died too often."""
        now = self._clock.monotonic()
        self._starts = [at for at in self._starts if now - at < RESTART_WINDOW_S]
        if len(self._starts) >= RESTARTS_MAX:
            died = f"the {self.who} process died {RESTARTS_MAX} times within {RESTART_WINDOW_S:.0f} s"
            if not self._others_serve:
                raise Unavailable(died)
            _log.error("%s; it is started again in %.0f s, and the others go on", died, AGAIN_S)
            await trio.sleep(AGAIN_S)
            self._starts.clear()
        self._starts.append(self._clock.monotonic())

    def _environment(self) -> dict[str, str]:
        prefix = f"PENSTOCK_{self.service.upper()}_"
        return {prefix + name.upper(): _as_text(value) for name, value in self._settings.items()}

    def _take_ready_line(self, said: str) -> None:
        """Takes the process's addresses from its ready line: a port that was any free one stays this one from now
        on."""
        address, *also = said.split()
        told = dict(one.split("=", 1) for one in also)
        told.pop("status", "")
        self.listeners = {name.removeprefix("mqtt-"): where for name, where in told.items()}
        self._settings["port"] = int(address.rpartition(":")[2])
        if "listeners" in self._settings:
            self._settings["listeners"] = with_ports(self._settings["listeners"], self.listeners)

    async def _wait_until_ready(self, process: trio.Process) -> str:
        """The ready line. Empty if a process that has run before does not start this time."""
        assert process.stdout is not None
        said = b""
        with trio.move_on_after(START_S) as patience:
            while True:
                line, newline, rest = said.partition(b"\n")
                words = line.decode("utf-8", "replace").split(maxsplit=2)
                if newline and words[:2] == ["starting", self.service]:
                    self.status = words[2].removeprefix("status=")
                    patience.deadline = math.inf  # its own pages say how far it has come, however long that takes
                    said = rest
                    continue
                if newline:
                    break
                chunk = await process.stdout.receive_some()
                if not chunk:
                    await process.wait()
                    break
                said += chunk
        wanted = f"ready {self.service}=".encode()
        if not said.startswith(wanted):
            if self.address:
                process.kill()
                return ""
            raise Unavailable(f"the {self.who} process did not start", hint="its own message stands above")
        return said[len(wanted) :].split(b"\n")[0].decode()

    async def _end(self, process: trio.Process) -> None:
        if process.returncode is None:
            process.terminate()
            with trio.move_on_after(STOP_S):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                await stream.aclose()


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


async def run(
    configuration: Configuration,
    world: World,
    stop: trio.Event,
    signals: AsyncIterable[int] | None = None,
    *,
    task_status: trio.TaskStatus[Addresses] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs the services as children until ``stop`` is set, then stops them, the gateway first. ``signals``
    are the operator's, for each gateway."""
    node, environ = configuration.node, os.environ
    parts = Parts(world, configuration.log)
    if node.gateways > 1:
        refuse_taken_ports(configuration)
    async with trio.open_nursery() as pages:
        where, access = (node.pages_host, node.http_port), pages_access(node, node.pages_host, world)
        told = (parts.figures, parts.reasons)
        http = await pages.start(partial(serve_status, *where, *told, node.http_hosts, access))
        async with trio.open_nursery() as bottom:
            secret = {"cluster_secret_file": node.cluster_secret_file or str(keep_secret(node.data))}
            given = place(configuration, "namesrv", environ) | secret
            names_child = parts.child("namesrv", for_child(configuration, "namesrv", environ, given))
            names = await bottom.start(names_child.run)
            async with trio.open_nursery() as middle:
                given = place(configuration, "broker", environ) | secret | node.copies
                given |= {"data": node.data, "namesrv": (names,)}
                broker = parts.child("broker", for_child(configuration, "broker", environ, given))
                store = await middle.start(broker.run)
                async with trio.open_nursery() as top:
                    gateways = await _start_gateways(configuration, names, store, secret, parts, top)
                    if signals is not None:
                        top.start_soon(_pass_on, signals, gateways, parts)
                    seen = ""
                    if node.console_port >= 0:
                        known = secret if console_may_act(configuration, os.environ) else {}
                        settings = service_settings(configuration, "console", namesrv=(names,), **known)
                        shown = await top.start(partial(console_server(), settings, world, is_port_wish=True))
                        seen = shown.url
                    front = gateways[0]
                    ready = (front.address, store, names, http, node.data, parts.figures, front.listeners, seen)
                    events = await _start_events(configuration, names, secret, parts, top)
                    parts.doing = ""
                    task_status.started(Addresses(*ready, events=events))
                    await stop.wait()
                    parts.doing = STOPPING
                    top.cancel_scope.cancel()
                middle.cancel_scope.cancel()
            bottom.cancel_scope.cancel()
        pages.cancel_scope.cancel()


async def _start_events(
    configuration: Configuration, names: str, secret: Mapping[str, str], parts: Parts, nursery: trio.Nursery
) -> str:
    """Starts the event bridge if the settings ask for it; returns its address, empty without one."""
    if configuration.node.events_port < 0:
        return ""
    events_server()
    given = place(configuration, "events", os.environ) | {"namesrv": (names,), **secret}
    child = parts.child("events", for_child(configuration, "events", os.environ, given))
    return str(await nursery.start(child.run))


async def _start_gateways(
    configuration: Configuration,
    names: str,
    store: str,
    secret: Mapping[str, str],
    parts: Parts,
    nursery: trio.Nursery,
) -> list[Child]:
    """Starts the gateways one after the other: a port that was any free one for the first is that port for the
    others."""
    node, environ = configuration.node, os.environ
    told = place(configuration, "gateway", environ) | listeners(configuration, environ)
    told |= {"namesrv": (names,), **secret}
    if node.gateways > 1:
        told["share_port"] = True
    gateways = []
    for number in range(node.gateways):
        told["name"] = f"{gateway_name(configuration, environ) or store}-{number}"
        settings = for_child(configuration, "gateway", environ, told)
        child = parts.child("gateway", settings, number if node.gateways > 1 else None)
        told["port"] = int((await nursery.start(child.run)).rpartition(":")[2])
        if "listeners" in told:
            told["listeners"] = with_ports(told["listeners"], child.listeners)
        gateways.append(child)
    return gateways


async def _pass_on(signals: AsyncIterable[int], gateways: Sequence[Child], parts: Parts) -> None:
    async for number in signals:
        for child in parts.children if number == LEVEL_SIGNAL else gateways:
            child.send_signal(signal.Signals(number))


class Parts:
    """The children, and what the status pages say of them.

    Attributes:
        doing: what the whole does instead of serving, empty while it serves.
    """

    def __init__(self, world: World, log: LogSettings) -> None:
        self.doing = STARTING
        self._world = world
        self._log = log
        self._children: dict[str, Child] = {}

    def child(self, service: str, settings: Mapping[str, Any], number: int | None = None) -> Child:
        """A child that is shown from now on. ``number``: of one of several gateways."""
        child = Child(service, {**settings, "status_port": 0}, self._world, number, self._log)
        self._children[child.who] = child
        return child

    @property
    def children(self) -> list[Child]:
        """All children."""
        return list(self._children.values())

    def _pages(self) -> dict[str, str]:
        return {who: child.status for who, child in self._children.items()}

    async def figures(self) -> Mapping[str, float]:
        """The figures of all parts that answer in time, and of this process; `/readyz` says which do not."""
        return await child_status.read_figures(self._pages()) | child_status.labelled(footprint.read(), "node")

    async def reasons(self) -> Sequence[str]:
        """The reasons why it is not ready."""
        found = await child_status.read_reasons(self._pages())
        return found or ([self.doing] if self.doing else [])
