"""`penstock up`: runs the system in this terminal until Ctrl-C or SIGTERM."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

import click
import trio

from node import settings
from node.addresses import Addresses
from penstock.errors import PenstockError
from penstock.service import memory
from penstock.service.process_log import LEVEL_SIGNAL, LevelSteps, obeyed
from penstock.service.service_main import STATUS_EXPECTED_ERROR, operator_signals, run_until_signal, say
from penstock.service.setting import declared
from penstock.world import real_world

F = TypeVar("F", bound=Callable[..., Any])
LAST_LOOK_S: Final = 5.0
COUNT: Final = "rocketmq_messages_in_total"
BYTES: Final = "rocketmq_throughput_in_total"


class RunTotals(NamedTuple):
    """The numbers of what a system has stored in one run."""

    messages: int
    bytes: int


_DECLARED: Final = declared(settings.NodeSettings)
_DEFAULTS: Final = {one.name: one.default for one in fields(settings.NodeSettings)}
_KINDS: Final = get_type_hints(settings.NodeSettings)


def _setting(name: str, flag: str = "", *, metavar: str | None = None) -> Callable[[F], F]:
    """The option of one of the node's settings, as its field declares it."""
    one, kind = _DECLARED[name], _KINDS[name]
    given: dict[str, Any] = {"help": one.option.format(default=_DEFAULTS[name]), "metavar": metavar}
    if kind is int:
        least, most = [None if bound is None else int(bound) for bound in (one.least, one.most)]
        given["type"] = click.IntRange(least, most)
    elif kind is Path:
        given["type"] = click.Path(path_type=Path, file_okay=False)
    elif kind is bool:
        given |= {"is_flag": True, "default": None}
    elif kind is not str:
        given["multiple"] = True
    return click.option(flag or f"--{name.replace('_', '-')}", name, **given)


@click.command(epilog="Every port may be 0: any free one. The line that begins with `ready` names what was taken.")
@_setting("data")
@click.option("--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="Settings as TOML.")
@_setting("mqtt_port")
@_setting("listen", metavar="LISTENER")
@_setting("broker_port")
@_setting("namesrv_port")
@_setting("http_port")
@_setting("events_port")
@_setting("console_port")
@_setting("rocketmq_port")
@_setting("rocketmq_namesrv_port")
@_setting("node")
@_setting("join", metavar="HOST:PORT")
@_setting("replica_port")
@_setting("cluster_secret_file", "--key", metavar="FILE")
@_setting("insecure")
@_setting("processes")
@_setting("gateways")
@click.option(
    "--demo", "as_demo", is_flag=True, help="With simulated devices, a service and Spark, live in this terminal."
)
@click.option("--json", "as_json", is_flag=True, help="Say that all is ready as one JSON object.")
def up(file: Path | None, as_demo: bool, as_json: bool, **flags: Any) -> None:
    """Run name server, broker and MQTT gateway together.

    \b
    Examples:
      penstock up                                  everything on its usual port, data in ./penstock-data
      penstock up --data /var/lib/penstock --config penstock.toml
      penstock up --mqtt-port 0 --http-port 0 ...  any free ports
      penstock up --listen 'tls 0.0.0.0:8883 certificate=server.pem' --listen 'ws 0.0.0.0:8083'
      penstock up --node a --replica-port 10912 --key cluster.key            a log that others may copy
      penstock up --node b --join host-a:10912 --key cluster.key --data B    a copy of it, which becomes level by itself
      penstock up --demo                           see it work
    """
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    try:
        configuration = settings.load(file, os.environ, given)
    except PenstockError as error:
        print(f"error: {error.told}", file=sys.stderr)
        sys.exit(STATUS_EXPECTED_ERROR)
    sys.exit(run_until_signal(partial(serve, configuration, as_demo, as_json), configuration.log))


async def serve(configuration: settings.Configuration, as_demo: bool, as_json: bool, stop: trio.Event) -> None:
    """Runs the system until ``stop``, says when it is ready, and shows the demo if asked."""
    from node import (
        demo,
        embedded,
        processes,
    )  # their code loads only when they run: other commands start fast

    node = configuration.node
    run = processes.run if node.processes or node.gateways > 1 else embedded.run
    world, stored = real_world(), None
    with trio.open_signal_receiver(*operator_signals(), LEVEL_SIGNAL) as received:
        signals = obeyed(received, LevelSteps(configuration.log.level))
        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as starting:
                starting.start_soon(_break_off, stop, nursery.cancel_scope)
                ends = trio.Event()
                addresses: Addresses = await nursery.start(partial(run, configuration, world, ends, signals))
                starting.cancel_scope.cancel()
            memory.settle()
            print(addresses.ready_json() if as_json else addresses.ready_line(), flush=True)
            if as_demo:
                nursery.start_soon(demo.run, addresses, world, stop)
            await stop.wait()
            stored = await totals(addresses)
            ends.set()
    if stored is not None:
        say(last_json(stored, node.data) if as_json else last_line(stored, node.data))


async def totals(addresses: Addresses) -> RunTotals | None:
    """The numbers of what the system has stored since its start; ``None`` if it does not answer soon."""
    with trio.move_on_after(LAST_LOOK_S):
        figures = await addresses.figures()
        count, size = figures.get(COUNT, 0), figures.get(BYTES, 0)
        return RunTotals(int(count), int(size))
    return None


def last_line(stored: RunTotals, data: Path) -> str:
    """The last line of `penstock up`."""
    if not stored.messages:
        return f"stopped: no messages were stored in this run; {data} is as it was found"
    size = f"{stored.bytes / (1 << 20):,.1f} MiB" if stored.bytes >= 1 << 20 else f"{stored.bytes:,} bytes"
    messages = "1 message" if stored.messages == 1 else f"{stored.messages:,} messages"
    return f"stopped: {messages} ({size}) stored in this run, in {data}; `penstock up --data {data}` goes on from there"


def last_json(stored: RunTotals, data: Path) -> str:
    """The same as one JSON object."""
    return json.dumps({"stopped": True, "messages": stored.messages, "bytes": stored.bytes, "data": str(data)})


async def _break_off(stop: trio.Event, start: trio.CancelScope) -> None:
    """Started parts are stopped in order; parts that are still starting end at once, with all that they have begun."""
    await stop.wait()
    start.cancel()
