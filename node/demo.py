"""The demo behind `penstock up --demo`: real devices over MQTT, a real consumer group, a real Spark job, one live
screen.

Everything here is an ordinary client of the running system; nothing in the services knows of the demo.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from rich.console import Console
from rich.live import Live

from node.addresses import Addresses
from node.demo_devices import DEVICES, DemoDevice, watch
from node.demo_view import AGGREGATE_ROWS_MAX, LINE_TICKS, Aggregate, DemoFigures, line, screen
from penstock import Consumer
from penstock.client.lasting_links import lasting_links
from penstock.client.wire_link import ask
from penstock.errors import PenstockError
from penstock.protocol.link import Link, Links
from penstock.protocol.requests.groups import DescribeGroup, GroupDetail
from penstock.protocol.requests.servers import BrokerFigures, ReadFigures
from penstock.protocol.requests.topics import DescribeTopic, TopicDetail
from penstock.world import World, seeded_rng

TOPIC: Final = "telemetry"
GROUP: Final = "demo-service"
WATCHED: Final = "telemetry/+/temperature"
TICK_S: Final = 1.0
CALL_S: Final = 2.0
WINDOW: Final = "10 seconds"
STORED_FIGURE: Final = "rocketmq_messages_in_total"


async def run(addresses: Addresses, world: World, stop: trio.Event) -> None:
    """Runs devices, service, Spark and screen until ``stop`` is set."""
    figures = DemoFigures(
        addresses.mqtt,
        addresses.broker,
        addresses.namesrv,
        addresses.http,
        str(addresses.data),
        command=_own_command(),
        devices=DEVICES,
    )
    async with lasting_links() as wire, trio.open_nursery() as nursery:
        figures.found = await _count_stored(wire.link(addresses.broker))
        for number in range(DEVICES):
            rng = seeded_rng(number)
            device = DemoDevice(number, addresses.mqtt, world.clock, rng, figures.published)
            nursery.start_soon(device.run)
        nursery.start_soon(_watch, addresses.mqtt, figures)
        nursery.start_soon(_serve, addresses.namesrv, figures)
        nursery.start_soon(_analyse, addresses, figures)
        nursery.start_soon(partial(_show, figures, wire, world))
        await stop.wait()
        nursery.cancel_scope.cancel()


def _own_command() -> str:
    """How a person calls this ``penstock`` in another terminal here."""
    called = Path(sys.argv[0])
    if shutil.which("penstock") is not None:
        return "penstock"
    return os.path.relpath(called) if called.name == "penstock" else f"{os.path.relpath(sys.executable)} -m node"


async def _count_stored(broker: Link) -> int:
    """Messages that the demo's topic holds before any device publishes."""
    try:
        topic = await ask(broker, DescribeTopic(TOPIC), TopicDetail, CALL_S)
    except PenstockError:
        return 0  # there is no such topic yet
    return sum([queue.end - queue.min for queue in topic.bounds])


async def _watch(address: str, figures: DemoFigures) -> None:
    while True:
        try:
            await watch(address, WATCHED, figures.delivered)
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        await trio.sleep(TICK_S)


async def _serve(namesrv: str, figures: DemoFigures) -> None:
    """The backend service: one member of a consumer group that reads, counts and commits."""
    while True:
        try:
            async with Consumer(GROUP, [TOPIC], servers=namesrv, start="earliest") as consumer:
                async for batch in consumer:
                    figures.consumed.total += len(batch)
                    await consumer.commit()
        except PenstockError:
            await trio.sleep(TICK_S)  # the topic comes with the first message of a device


async def _analyse(addresses: Addresses, figures: DemoFigures) -> None:
    """Runs the telemetry job as a process of its own and takes the tables that it prints, one JSON line each."""
    command = [sys.executable, "-m", "penstock.telemetry", "--topic", TOPIC, "--window", WINDOW, "--json"]
    command += ["--server", addresses.namesrv, "--starting-offsets", "latest", "--light"]
    log = Path(addresses.data) / "demo-spark.log"
    with log.open("wb") as said:
        process = await trio.lowlevel.open_process(
            command, stdout=subprocess.PIPE, stderr=said, stdin=subprocess.DEVNULL, start_new_session=True
        )
    assert process.stdout is not None
    try:
        rest = b""
        async for chunk in process.stdout:
            *lines, rest = (rest + bytes(chunk)).split(b"\n")
            for one in lines:
                _take_table(one, figures)
        status = await process.wait()
        figures.spark = f"the Spark job ended with status {status}; {log} says why"
    finally:
        _kill_group(process)
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()


def _kill_group(process: trio.Process) -> None:
    if process.returncode is None:
        os.killpg(process.pid, 9)  # Spark is a Python driver, a Java machine and Python workers


def _take_table(text: bytes, figures: DemoFigures) -> None:
    try:
        batch: dict[str, Any] = json.loads(text)
        rows = [
            Aggregate(
                row["window_start"], row["device"], row["metric"], row["count"], row["mean"], row["min"], row["max"]
            )
            for row in batch["rows"]
        ]
    except (ValueError, KeyError, TypeError):
        return  # Spark's own chatter
    if rows:
        newest = max(row.window for row in rows)
        figures.aggregates = sorted((row for row in rows if row.window == newest), key=lambda row: row.device)[
            :AGGREGATE_ROWS_MAX
        ]
        figures.spark = f"{WINDOW} windows, {len(rows)} rows in batch {batch.get('batch', '?')}"


async def _show(figures: DemoFigures, links: Links, world: World) -> None:
    console = Console()
    if not console.is_terminal:
        return await _show_lines(figures, links, world)
    with Live(screen(figures, console.height), console=console, screen=False, auto_refresh=False) as live:
        while True:
            await _tick(figures, links, world)
            live.update(screen(figures, console.height), refresh=True)


async def _show_lines(figures: DemoFigures, links: Links, world: World) -> None:
    if figures.found:
        print(f"{figures.found:,} messages of earlier starts found in {figures.data}", flush=True)
    while True:
        for _ in range(LINE_TICKS):
            await _tick(figures, links, world)
        print(line(figures), flush=True)


async def _tick(figures: DemoFigures, links: Links, world: World) -> None:
    """Waits a tick, then takes the broker's counters and the group's lag."""
    before = world.clock.monotonic()
    await trio.sleep(TICK_S)
    link = links.link(figures.broker)
    try:
        counters = await ask(link, ReadFigures(), BrokerFigures, CALL_S)
        group = await ask(link, DescribeGroup(GROUP), GroupDetail, CALL_S)
    except PenstockError:
        return  # the broker restarts, or the group has no member yet
    finally:
        for stage in figures.stages:
            stage.tick(world.clock.monotonic() - before)
    figures.stored.total = int(dict(zip(counters.names, counters.values, strict=True))[STORED_FIGURE])
    figures.lag = sum(row.end - max(row.offset, 0) for row in group.lags)
