"""A running name server: over the wire, from within the process, and while time passes."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import urllib.request
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest
import trio

from namesrv import server
from namesrv.server import RunningNamesrv
from namesrv.settings import NamesrvSettings
from penstock.client.wire_link import WireLinks, call
from penstock.clock import Clock
from penstock.errors import AddressInUse, InvalidConfig, NotAuthorized, UnknownRequest
from penstock.protocol.requests.request import Done, Result
from penstock.protocol.requests.routes import (
    BrokerRoute,
    Challenge,
    ProveBroker,
    QueryChallenge,
    QueryRoute,
    QueryTopics,
    RegisterBroker,
    Route,
    TopicNames,
    TopicRoute,
    UnregisterBroker,
)
from penstock.protocol.requests.servers import Ping, ReadFigures, ServerInfo
from penstock.service.cluster_secret import broker_proof, keep_secret
from penstock.service.frame_server import Peer
from penstock.world import World, real_world
from tests.patience import PATIENCE_S

LOCAL = NamesrvSettings(port=0)
REGISTRATION = RegisterBroker("a", "127.0.0.1:10911", 1, 120, (TopicRoute("orders", 4),))


class TrioClock(Clock):
    """The clock of the event loop that runs the test: virtual time."""

    def monotonic(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return 0


def virtual_world() -> World:
    return replace(real_world(), clock=TrioClock(), rng=random.Random(1))


def answer(running: RunningNamesrv, request: object) -> Result:
    """What a session within the process says; it answers before it returns."""
    results: list[Result] = []
    session = running.open_session(Peer(0, "here"))
    session.submit(request, results.append)  # type: ignore[arg-type]
    session.flush()
    [result] = results
    return result


@pytest.mark.endtoend
async def test_brokers_and_clients_meet_over_the_wire() -> None:
    async with trio.open_nursery() as nursery, anyio.create_task_group() as wire:
        running: RunningNamesrv = await nursery.start(server.run, LOCAL, real_world())
        link = WireLinks(wire).link(f"{running.host}:{running.port}")
        assert await call(link, REGISTRATION, 5) == Done()
        assert await call(link, QueryRoute("orders"), 5) == Route((BrokerRoute("a", "127.0.0.1:10911", 4),))
        about = await call(link, Ping(), 5)
        assert isinstance(about, ServerInfo)
        assert (about.role, about.name) == ("namesrv", f"127.0.0.1:{running.port}")
        wire.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


@pytest.mark.endtoend
async def test_a_request_of_another_service_is_an_error_and_the_connection_lives() -> None:
    async with trio.open_nursery() as nursery, anyio.create_task_group() as wire:
        running: RunningNamesrv = await nursery.start(server.run, LOCAL, real_world())
        link = WireLinks(wire).link(f"{running.host}:{running.port}")
        with pytest.raises(UnknownRequest, match="a name server does not serve ReadFigures"):
            await call(link, ReadFigures(), 5)
        assert await call(link, QueryTopics(), 5) == TopicNames(())
        wire.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


async def test_a_silent_broker_is_forgotten_when_its_lease_ends() -> None:
    async with trio.open_nursery() as nursery:
        running: RunningNamesrv = await nursery.start(server.run, LOCAL, virtual_world())
        assert answer(running, REGISTRATION) == Done()
        await trio.sleep(119)
        assert answer(running, QueryTopics()) == TopicNames(("orders",))
        await trio.sleep(2)
        assert answer(running, QueryTopics()) == TopicNames((), absent=("orders",), away=("a",))
        nursery.cancel_scope.cancel()


async def test_it_says_so_when_a_lease_ends_without_anybody_asking(caplog: pytest.LogCaptureFixture) -> None:
    async with trio.open_nursery() as nursery:
        running: RunningNamesrv = await nursery.start(server.run, LOCAL, virtual_world())
        answer(running, REGISTRATION)
        await trio.sleep(120 + server.EXPIRE_EVERY_S)
        assert "the lease of broker a ended" in caplog.text
        nursery.cancel_scope.cancel()


async def test_two_name_servers_know_nothing_of_each_other() -> None:
    async with trio.open_nursery() as nursery:
        one: RunningNamesrv = await nursery.start(server.run, LOCAL, virtual_world())
        other: RunningNamesrv = await nursery.start(server.run, LOCAL, virtual_world())
        answer(one, REGISTRATION)
        assert answer(one, QueryTopics()) == TopicNames(("orders",))
        assert answer(other, QueryTopics()) == TopicNames(())
        nursery.cancel_scope.cancel()


async def test_a_taken_port_is_a_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(AddressInUse):
            await server.run(NamesrvSettings(port=taken.getsockname()[1]), virtual_world())


def run_module(*arguments: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "namesrv", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )


@pytest.mark.endtoend
def test_the_command_says_when_it_is_ready_and_ends_with_status_0_on_sigterm() -> None:
    with run_module(PENSTOCK_NAMESRV_PORT="0") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready namesrv=127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.endtoend
def test_a_name_server_alone_has_status_pages_if_it_is_told_so() -> None:
    with run_module(PENSTOCK_NAMESRV_PORT="0", PENSTOCK_NAMESRV_STATUS_PORT="0") as process:
        assert process.stdout is not None
        process.stdout.readline()
        status = process.stdout.readline().partition(" status=")[2].strip()
        for path, expected in (("livez", "ok"), ("readyz", "ok"), ("metrics", "\nnamesrv_brokers 0\n")):
            with urllib.request.urlopen(f"http://{status}/{path}", timeout=PATIENCE_S) as page:
                assert expected in page.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.endtoend
def test_the_command_refuses_an_unknown_setting_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text("prot = 1\n")
    with run_module("--config", str(file)) as process:
        said, complained = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (2, "")
    assert complained == f"error: {file}:1: prot is no setting (did you mean 'port'?)\n"


async def test_a_name_server_for_other_machines_needs_the_clusters_secret_and_says_so() -> None:
    with pytest.raises(InvalidConfig, match=r"any peer could end a broker or .*set cluster_secret_file"):
        await server.run(NamesrvSettings(host="0.0.0.0", port=0, insecure=True), virtual_world())


async def test_a_name_server_for_other_machines_says_in_its_log_what_they_may_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = str(keep_secret(tmp_path))
    settings = NamesrvSettings(host="0.0.0.0", port=0, insecure=True, cluster_secret_file=secret)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, settings, virtual_world())
        assert "insecure: any client that reaches 0.0.0.0:0 reads all routes" in caplog.text
        nursery.cancel_scope.cancel()


async def test_peers_without_a_proof_are_counted_and_told_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async with trio.open_nursery() as nursery:
        run = partial(server.run, secret=bytes(32))
        running: RunningNamesrv = await nursery.start(run, LOCAL, virtual_world())
        for _ in range(50):
            assert isinstance(answer(running, REGISTRATION), NotAuthorized)
            await trio.sleep(1)
        assert running.figures()["namesrv_refused_total"] == 50
        assert caplog.text.count("refused here: this connection has not proved to be broker 'a'") == 1
        await trio.sleep(11)
        answer(running, REGISTRATION)
        assert "(51 requests refused since the start)" in caplog.text
        nursery.cancel_scope.cancel()


async def test_a_connection_that_proves_to_be_a_broker_may_register_and_the_next_one_must_prove_it_too() -> None:
    async with trio.open_nursery() as nursery:
        run = partial(server.run, secret=bytes(32))
        running: RunningNamesrv = await nursery.start(run, LOCAL, virtual_world())
        results: list[Result] = []
        session = running.open_session(Peer(1, "there"))
        session.submit(QueryChallenge(), results.append)
        assert isinstance(results[0], Challenge)
        name, address = REGISTRATION.broker, REGISTRATION.address
        proof = broker_proof(bytes(32), results[0].nonce, name, address)
        session.submit(ProveBroker(name, address, proof), results.append)
        session.submit(REGISTRATION, results.append)
        assert results[1:] == [Done(), Done()]
        assert isinstance(answer(running, UnregisterBroker(name, address)), NotAuthorized)
        assert answer(running, QueryTopics()) == TopicNames(("orders",))
        nursery.cancel_scope.cancel()
