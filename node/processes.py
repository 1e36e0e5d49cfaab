"""The services as child processes: `penstock up --processes`.

Each child is the service's own ``python -m SERVICE`` with its settings in the environment. A child that dies is started
again on the same port (a broker then recovers its log), after growing pauses; one that keeps dying ends the whole
system with an error. No child outlives this process: each holds the other end of a pipe and stops when it closes.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import trio

from node import gateway_status
from node.addresses import Addresses
from node.settings import Configuration, for_child, gateway_name, listeners, place, with_ports
from penstock.errors import PenstockError, Unavailable
from penstock.lasting_links import lasting_links
from penstock.link import Links
from penstock.requests.servers import BrokerFigures, Ping, ReadFigures, ServerInfo
from penstock.service_main import CHILD_VARIABLE
from penstock.status import serve_status
from penstock.wire_link import ask
from penstock.world import World

RESTARTS_MAX: Final = 5
RESTART_WINDOW_S: Final = 60.0
START_S: Final = 60.0
STOP_S: Final = 3.0
"""A child gets this long to end by itself; then it is killed."""
FIGURES_S: Final = 2.0

_log = logging.getLogger(__name__)


class Child:
    """One service process, started again when it dies.

    Args:
        service: ``namesrv``, ``broker`` or ``gateway``: the package that is run.
        settings: what the process is given, by setting name; ports of 0 are fixed by the first start.
    """

    def __init__(self, service: str, settings: Mapping[str, Any], world: World) -> None:
        self.service = service
        self.address = ""
        self.status = ""
        self.listeners: dict[str, str] = {}
        self._settings = dict(settings)
        self._clock = world.clock
        self._starts: list[float] = []
        self._stopping = False
        self._process: trio.Process | None = None

    async def run(self, *, task_status: trio.TaskStatus[str]) -> None:
        """Keeps the process running until cancelled; reports its address once it is ready the first time."""
        while not self._stopping:
            self._refuse_to_start_for_ever()
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", self.service],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | self._environment() | {CHILD_VARIABLE: "1"},
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
                _log.warning("the %s process ended with status %s; starting it again", self.service, status)
            finally:
                with trio.CancelScope(shield=True):
                    await self._end(process)
            await trio.sleep(0.1 * 2 ** len(self._starts))

    def send_signal(self, number: signal.Signals) -> None:
        """Sends the process a signal, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def _refuse_to_start_for_ever(self) -> None:
        now = self._clock.monotonic()
        self._starts = [at for at in self._starts if now - at < RESTART_WINDOW_S]
        if len(self._starts) >= RESTARTS_MAX:
            raise Unavailable(f"the {self.service} process died {RESTARTS_MAX} times within {RESTART_WINDOW_S:.0f} s")
        self._starts.append(now)

    def _environment(self) -> dict[str, str]:
        prefix = f"PENSTOCK_{self.service.upper()}_"
        return {prefix + name.upper(): _as_text(value) for name, value in self._settings.items()}

    def _take_ready_line(self, said: str) -> None:
        """Where the process listens: what was any free port is this one from now on."""
        address, *also = said.split()
        told = dict(one.split("=", 1) for one in also)
        self.status = told.pop("status", "")
        self.listeners = {name.removeprefix("mqtt-"): where for name, where in told.items()}
        self._settings["port"] = int(address.rpartition(":")[2])
        if "listeners" in self._settings:
            self._settings["listeners"] = with_ports(self._settings["listeners"], self.listeners)

    async def _wait_until_ready(self, process: trio.Process) -> str:
        """What the ready line says. Empty where a process that has run before was ended by a signal while it
        started."""
        assert process.stdout is not None
        wanted, said = f"ready {self.service}=".encode(), b""
        with trio.move_on_after(START_S):
            while b"\n" not in said:
                chunk = await process.stdout.receive_some()
                if not chunk:
                    await process.wait()
                    break
                said += chunk
        if self.address and (process.returncode or 0) < 0:
            return ""
        if not said.startswith(wanted):
            raise Unavailable(f"the {self.service} process did not start", hint="its own message stands above")
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
    async with trio.open_nursery() as bottom:
        given = place(configuration, "namesrv", environ)
        names = await bottom.start(Child("namesrv", for_child(configuration, "namesrv", environ, given), world).run)
        async with trio.open_nursery() as middle:
            given = place(configuration, "broker", environ) | {"data": node.data, "namesrv": (names,)}
            store = await middle.start(Child("broker", for_child(configuration, "broker", environ, given), world).run)
            async with lasting_links() as wire, trio.open_nursery() as top:
                told = place(configuration, "gateway", environ) | listeners(configuration, environ)
                told |= {"namesrv": (names,), "status_port": 0}
                if node.gateways > 1:
                    told["share_port"] = True
                gateways = []
                for number in range(node.gateways):
                    told["name"] = f"{gateway_name(configuration, environ) or store}-{number}"
                    child = Child("gateway", for_child(configuration, "gateway", environ, told), world)
                    told["port"] = int((await top.start(child.run)).rpartition(":")[2])
                    if "listeners" in told:
                        told["listeners"] = with_ports(told["listeners"], child.listeners)
                    gateways.append(child)
                front = gateways[0].address
                read, reasons = (
                    partial(_read_figures, wire, store, gateways),
                    partial(_read_reasons, wire, store, gateways),
                )
                http = await top.start(partial(serve_status, node.host, node.http_port, read, reasons))
                if signals is not None:
                    top.start_soon(_pass_on, signals, gateways)
                task_status.started(Addresses(front, store, names, http, node.data, gateways[0].listeners))
                await stop.wait()
                top.cancel_scope.cancel()
            middle.cancel_scope.cancel()
        bottom.cancel_scope.cancel()


async def _pass_on(signals: AsyncIterable[int], gateways: Sequence[Child]) -> None:
    async for number in signals:
        for gateway in gateways:
            gateway.send_signal(signal.Signals(number))


async def _read_figures(links: Links, broker: str, gateways: Sequence[Child]) -> Mapping[str, float]:
    """The figures of all parts that answer in time; `/readyz` says which do not."""
    of_broker: dict[str, float] = {}

    async def ask_broker() -> None:
        with suppress(PenstockError):
            reply = await ask(links.link(broker), ReadFigures(), BrokerFigures, FIGURES_S)
            of_broker.update(zip(reply.names, reply.values, strict=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_broker)
        of_gateways = await gateway_status.read_figures([gateway.status for gateway in gateways])
    return of_broker | of_gateways


async def _read_reasons(links: Links, broker: str, gateways: Sequence[Child]) -> Sequence[str]:
    of_broker: list[str] = []

    async def ask_broker() -> None:
        try:
            await ask(links.link(broker), Ping(), ServerInfo, FIGURES_S)
        except PenstockError as error:
            of_broker.append(f"broker: {error}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_broker)
        of_gateways = await gateway_status.read_reasons([gateway.status for gateway in gateways])
    return [*of_gateways, *of_broker]
