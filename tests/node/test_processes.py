from __future__ import annotations

import contextlib
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from node import processes, settings
from node.child_status import fetch, read_page
from node.processes import Child
from penstock.client.lasting_links import lasting_links
from penstock.client.wire_link import ask
from penstock.errors import Unavailable
from penstock.protocol.addresses import split_address
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.service.service_main import expected_error
from penstock.world import real_world
from tests.patience import PATIENCE_S

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


async def test_a_child_that_is_killed_comes_back_on_the_same_port() -> None:
    async with trio.open_nursery() as nursery, lasting_links() as links:
        address = await nursery.start(Child("namesrv", {"port": 0}, real_world()).run)
        before = children()
        os.kill(before[0], signal.SIGKILL)
        answer = None
        with trio.fail_after(PATIENCE_S):
            while answer is None:
                with contextlib.suppress(Unavailable):  # until the new process listens
                    answer = await ask(links.link(address), Ping(), ServerInfo)
        assert children() != before
        nursery.cancel_scope.cancel()
    assert answer.role == "namesrv"
    assert children() == []


async def test_a_child_that_is_killed_again_before_it_is_ready_comes_back() -> None:
    async with trio.open_nursery() as nursery, lasting_links() as links:
        address = await nursery.start(Child("namesrv", {"port": 0}, real_world()).run)
        with trio.fail_after(PATIENCE_S):
            before = children()
            os.kill(before[0], signal.SIGKILL)
            again = before
            while again in ([], before):
                await trio.sleep(0.001)
                again = children()
            os.kill(again[0], signal.SIGKILL)  # long before it can have said that it is ready
            answer = None
            while answer is None:
                with contextlib.suppress(Unavailable):
                    answer = await ask(links.link(address), Ping(), ServerInfo)
        nursery.cancel_scope.cancel()
    assert answer.role == "namesrv"


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


async def test_a_gateway_in_its_own_process_tells_its_figures_and_health_and_can_be_drained(tmp_path: Path) -> None:
    ports = {"mqtt_port": 0, "broker_port": 0, "namesrv_port": 0, "http_port": 0}
    configuration = settings.load(None, {}, {"data": tmp_path / "data", **ports})
    stop = trio.Event()
    operator, signals = trio.open_memory_channel[int](1)
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(partial(processes.run, configuration, real_world(), stop, signals))
        with trio.fail_after(PATIENCE_S):
            while (await fetch(addresses.http, "/readyz"))[0] != 200:
                pass  # the gateway has not heard of the broker yet
            figures = read_page((await fetch(addresses.http, "/metrics"))[1])
            assert figures["gateway_connections"] == 0
            assert figures["rocketmq_messages_in_total"] >= 0
            operator.send_nowait(signal.SIGUSR1)
            status, page = 200, ""
            while status == 200:
                status, page = await fetch(addresses.http, "/readyz")
        assert (status, page) == (503, "gateway: this gateway is being drained\n")
        stop.set()


async def test_the_figures_of_every_process_are_told_and_tell_them_apart(tmp_path: Path) -> None:
    ports = {"mqtt_port": 0, "broker_port": 0, "namesrv_port": 0, "http_port": 0}
    configuration = settings.load(None, {}, {"data": tmp_path / "data", **ports})
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(partial(processes.run, configuration, real_world(), stop))
        figures = read_page((await fetch(addresses.http, "/metrics"))[1])
        stop.set()
    family = "process_resident_memory_bytes"
    assert sorted(name for name in figures if name.startswith(family)) == [
        f'{family}{{service="{service}"}}' for service in ("broker", "gateway", "namesrv", "node")
    ]
    assert figures["namesrv_brokers"] == 1


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


async def test_while_the_broker_does_not_answer_the_figures_of_the_gateways_are_still_told(tmp_path: Path) -> None:
    ports = {"mqtt_port": 0, "broker_port": 0, "namesrv_port": 0, "http_port": 0}
    configuration = settings.load(None, {}, {"data": tmp_path / "data", "gateways": 2, **ports})
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(partial(processes.run, configuration, real_world(), stop))
        [broker] = children("broker")
        os.kill(broker, signal.SIGSTOP)
        try:
            status, page = await fetch_slowly(addresses.http, "/metrics")
            reasons = (await fetch_slowly(addresses.http, "/readyz"))[1]
        finally:
            os.kill(broker, signal.SIGCONT)
        figures = read_page(page)
        assert status == 200
        assert [figures[f'gateway_connections{{gateway="{number}"}}'] for number in range(2)] == [0, 0]
        assert not [name for name in figures if name.startswith("rocketmq_")]
        assert "broker: " in reasons
        stop.set()


async def fetch_slowly(address: str, path: str) -> tuple[int, str]:
    """A page that has longer than a gateway's own."""
    host, port = split_address(address)
    with trio.fail_after(PATIENCE_S):
        async with await trio.open_tcp_stream(host, port) as stream:
            await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
            said = b"".join([part async for part in stream])
    head, _, body = said.decode().partition("\r\n\r\n")
    return int(head.split()[1]), body


async def test_gateways_in_processes_of_their_own_listen_where_their_section_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[gateway]\nhost = "127.0.0.2"\nport = 0\n[namesrv]\nhost = "127.0.0.2"\n')
    flags = {"data": tmp_path / "data", "gateways": 2, "broker_port": 0, "namesrv_port": 0, "http_port": 0}
    monkeypatch.setenv("PENSTOCK_NAMESRV_HOST", "127.0.0.3")
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        chosen = settings.load(file, {}, flags)
        addresses = await nursery.start(partial(processes.run, chosen, real_world(), stop))
        sockets = listening(int(addresses.mqtt.rpartition(":")[2]), "0200007F")
        stop.set()
    at = (addresses.mqtt, addresses.broker, addresses.namesrv, addresses.http)
    assert [one.rpartition(":")[0] for one in at] == ["127.0.0.2", "127.0.0.1", "127.0.0.3", "127.0.0.1"]
    assert len(sockets) == 2


def listening(port: int, host: str = "0100007F") -> set[str]:
    """The inodes of the sockets that listen on a port of a host, 127.0.0.1 if not said."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[1] == f"{host}:{port:04X}" and row[3] == "0A"}


async def test_several_gateways_share_every_listener_also_one_on_any_free_port(tmp_path: Path) -> None:
    ports = {"mqtt_port": 0, "broker_port": 0, "namesrv_port": 0, "http_port": 0}
    flags = {"data": tmp_path / "data", "gateways": 2, "listen": ("tcp 127.0.0.1:0 name=also",), **ports}
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(partial(processes.run, settings.load(None, {}, flags), real_world(), stop))
        places = [int(one.rpartition(":")[2]) for one in (addresses.mqtt, addresses.listeners["also"])]
        before = [listening(port) for port in places]
        assert [len(sockets) for sockets in before] == [2, 2]
        os.kill(children("gateway")[0], signal.SIGKILL)
        with trio.fail_after(PATIENCE_S):  # it comes back where it was
            after = before
            while after == before or [len(sockets) for sockets in after] != [2, 2]:
                await trio.sleep(0.05)
                after = [listening(port) for port in places]
        assert [one != other for one, other in zip(before, after, strict=True)] == [True, True]
        stop.set()
