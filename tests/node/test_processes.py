from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from node import processes, settings
from node.addresses import Addresses
from node.child_status import read_page
from node.processes import Child
from penstock.client.lasting_links import lasting_links
from penstock.client.wire_link import ask
from penstock.errors import Unavailable
from penstock.protocol.addresses import split_address
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.service.service_main import expected_error
from penstock.world import real_world
from tests.node.stranger import check_refusals
from tests.patience import poll_async

pytestmark = pytest.mark.endtoend


def children(service: str = "namesrv") -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == os.getpid() and f"\0{service}\0" in (path.parent / "cmdline").read_text():
            found.append(int(path.parent.name))
    return found


async def test_a_child_that_is_killed_comes_back_on_the_same_port_also_if_it_was_not_ready_yet() -> None:
    async with trio.open_nursery() as nursery, lasting_links() as links:
        address = await nursery.start(Child("namesrv", {"port": 0}, real_world()).run)
        before = children()
        os.kill(before[0], signal.SIGKILL)
        again = await poll_async("a new process", children, lambda found: found not in ([], before))
        os.kill(again[0], signal.SIGKILL)  # long before it can have said that it is ready
        answer = await poll_async(
            "the name server's answer", lambda: ask(links.link(address), Ping(), ServerInfo), despite=Unavailable
        )
        assert children() not in (before, again)
        nursery.cancel_scope.cancel()
    assert answer.role == "namesrv"
    assert children() == []


async def test_a_child_that_cannot_start_is_an_error_of_its_own() -> None:
    error = None
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(Child("namesrv", {"port": "not a port"}, real_world()).run)
    except BaseExceptionGroup as group:
        error = expected_error(group)
    assert isinstance(error, Unavailable)
    assert "namesrv" in str(error)


async def test_a_child_that_ran_and_starts_no_more_is_tried_again_before_all_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "RESTARTS_MAX", 3)
    child = Child("namesrv", {"port": 0}, real_world())
    error = None
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(child.run)
            child._settings["port"] = "not a port"
            os.kill(children()[0], signal.SIGKILL)
    except BaseExceptionGroup as group:
        error = expected_error(group)
    assert isinstance(error, Unavailable)
    assert "died 3 times" in str(error)
    ended = [message for message in caplog.messages if "starting it again" in message]
    assert [message.partition(" with status ")[2].split(";")[0] for message in ended] == ["-9", "2", "2"]
    assert children() == []


def test_one_of_several_gateways_that_keeps_dying_is_tried_again_later() -> None:
    async def starts(child: Child) -> float:
        for _ in range(processes.RESTARTS_MAX + 2):
            await child._hold_back()
        return trio.current_time()

    clock = MockClock(autojump_threshold=0)
    began = clock.current_time()
    alone, others_serve = Child("gateway", {}, real_world()), Child("gateway", {}, real_world(), 1)
    assert trio.run(starts, others_serve, clock=clock) - began == processes.AGAIN_S
    with pytest.raises(Unavailable, match="the gateway process died 5 times"):
        trio.run(starts, alone, clock=MockClock(autojump_threshold=0))


class Slow:
    """Stands for a process that takes its time: each line comes so many seconds after the one before."""

    returncode: int | None = None

    def __init__(self, *lines: tuple[float, str]) -> None:
        self._lines = list(lines)
        self.stdout = self

    async def receive_some(self) -> bytes:
        after_s, line = self._lines.pop(0)
        await trio.sleep(after_s)
        return line.encode()


STARTING_LINE = (1, "starting broker status=127.0.0.1:8\n")
READY_LINE = (36_000, "ready broker=127.0.0.1:7 status=127.0.0.1:8\n")


def waited_for(child: Child, *lines: tuple[float, str]) -> str:
    """What a child's ready line says, in virtual time."""
    process: Any = Slow(*lines)
    return trio.run(child._wait_until_ready, process, clock=MockClock(autojump_threshold=0))


def test_a_child_that_says_that_it_starts_is_waited_for_however_long_it_takes() -> None:
    child = Child("broker", {}, real_world())
    assert waited_for(child, STARTING_LINE, READY_LINE) == "127.0.0.1:7 status=127.0.0.1:8"
    assert child.status == "127.0.0.1:8"


def test_a_child_that_says_nothing_has_a_minute() -> None:
    with pytest.raises(Unavailable, match="did not start"):
        waited_for(Child("broker", {}, real_world()), READY_LINE)


async def page_of(addresses: Addresses, path: str, *, status: int) -> str:
    """A page, once it has this status."""

    async def fetch() -> tuple[int, str]:
        """Waits for longer than the page does for a child that does not answer."""
        host, port = split_address(addresses.http)
        async with await trio.open_tcp_stream(host, port) as stream:
            await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            head, _, body = b"".join([part async for part in stream]).decode().partition("\r\n\r\n")
        return int(head.split()[1]), body

    told = await poll_async(f"{path} with status {status}", fetch, lambda told: told[0] == status)
    return told[1]


async def test_services_in_processes_tell_their_figures_and_health_can_be_drained_and_let_no_stranger_take_the_broker(
    tmp_path: Path,
) -> None:
    ports = {"mqtt_port": 0, "broker_port": 0, "namesrv_port": 0, "http_port": 0}
    configuration = settings.load(None, {}, {"data": tmp_path / "data", **ports})
    stop = trio.Event()
    operator, signals = trio.open_memory_channel[int](1)
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(partial(processes.run, configuration, real_world(), stop, signals))
        await page_of(addresses, "/readyz", status=200)  # the gateway has heard of the broker
        figures = read_page(await page_of(addresses, "/metrics", status=200))
        await check_refusals(addresses)
        operator.send_nowait(signal.SIGUSR1)
        page = await page_of(addresses, "/readyz", status=503)
        stop.set()
    assert page == "gateway: this gateway is being drained\n"
    assert figures["gateway_connections"] == 0
    assert figures["rocketmq_messages_in_total"] >= 0
    assert figures["namesrv_brokers"] == 1
    family = "process_resident_memory_bytes"
    assert sorted(name for name in figures if name.startswith(family)) == [
        f'{family}{{service="{service}"}}' for service in ("broker", "gateway", "namesrv", "node")
    ]


def listening(port: int, host: str = "0100007F") -> set[str]:
    """The inodes of the sockets that listen on a port of a host, 127.0.0.1 if not said."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[1] == f"{host}:{port:04X}" and row[3] == "0A"}


async def test_several_gateways_share_every_listener_where_their_section_says_and_come_back_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the broker does not answer, their figures are still told."""
    file = tmp_path / "penstock.toml"
    file.write_text('[gateway]\nhost = "127.0.0.2"\nport = 0\n[namesrv]\nhost = "127.0.0.2"\n')
    flags = {"data": tmp_path / "data", "gateways": 2, "broker_port": 0, "namesrv_port": 0, "http_port": 0}
    monkeypatch.setenv("PENSTOCK_NAMESRV_HOST", "127.0.0.3")
    chosen = settings.load(file, {}, flags | {"listen": ("tcp 127.0.0.1:0 name=also",)})
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(partial(processes.run, chosen, real_world(), stop))
        at = (addresses.mqtt, addresses.broker, addresses.namesrv, addresses.http)
        assert [one.rpartition(":")[0] for one in at] == ["127.0.0.2", "127.0.0.1", "127.0.0.3", "127.0.0.1"]
        await tell_their_figures_without_the_broker(addresses)
        await come_back(addresses)
        stop.set()


async def tell_their_figures_without_the_broker(addresses: Addresses) -> None:
    [broker] = children("broker")
    os.kill(broker, signal.SIGSTOP)
    try:
        page = await page_of(addresses, "/metrics", status=200)
        reasons = await page_of(addresses, "/readyz", status=503)
    finally:
        os.kill(broker, signal.SIGCONT)
    figures = read_page(page)
    assert [figures[f'gateway_connections{{gateway="{number}"}}'] for number in range(2)] == [0, 0]
    assert not [name for name in figures if name.startswith("rocketmq_")]
    assert "broker: " in reasons


async def come_back(addresses: Addresses) -> None:
    """A gateway that is killed listens where it did, also on a port that was any free one."""
    mqtt, also = (int(one.rpartition(":")[2]) for one in (addresses.mqtt, addresses.listeners["also"]))

    def sockets() -> list[set[str]]:
        return [listening(mqtt, "0200007F"), listening(also)]

    before = sockets()
    assert [len(one) for one in before] == [2, 2]
    os.kill(children("gateway")[0], signal.SIGKILL)

    def is_back(after: list[set[str]]) -> bool:
        return all(len(one) == 2 and one != other for one, other in zip(after, before, strict=True))

    await poll_async("two gateways that listen at both places", sockets, is_back)
