"""The running gateway on real sockets, at a broker on a simulated disk."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from linked_broker import LinkedBroker
from stream_client import Client
from wire_ends import Authority

from gateway.mqtt.codec import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from gateway.server import RunningGateway, obey, run
from gateway.settings import GatewaySettings
from penstock.errors import AddressInUse, InvalidConfig
from penstock.protocol.requests.servers import Ping
from penstock.service.validity import ends_at
from penstock.world import World, real_world
from tests.patience import PATIENCE_S
from tests.penstock.hand_clock import SetClock

pytestmark = pytest.mark.endtoend


@asynccontextmanager
async def serving(broker: LinkedBroker | None = None, **settings: Any) -> AsyncIterator[RunningGateway]:
    async with trio.open_nursery() as nursery:
        serve = partial(
            run, GatewaySettings(port=0, **settings), real_world(), broker or LinkedBroker(real_world().clock)
        )
        yield await nursery.start(serve)
        nursery.cancel_scope.cancel()


@pytest.fixture
def streams() -> Iterator[list[trio.SocketStream]]:
    """Client sockets of a test, closed after it."""
    opened: list[trio.SocketStream] = []
    yield opened
    for stream in opened:
        stream.socket._sock.close()  # trio's own close needs a running loop


async def connect(
    running: RunningGateway, streams: list[trio.SocketStream], client_id: str, level: int = 4, **asked: Any
) -> Client:
    streams.append(await trio.open_tcp_stream("127.0.0.1", running.port))
    client = Client(streams[-1], level)
    await client.send(Connect(client_id, level=level, **asked))
    assert isinstance(await client.next(), Connack)
    return client


@pytest.mark.parametrize("shards", [1, 3])
async def test_messages_go_from_client_to_client_over_any_number_of_shards(
    shards: int, streams: list[trio.SocketStream]
) -> None:
    async with serving(shards=shards) as running:
        publisher = await connect(running, streams, "p")
        subscribers = [await connect(running, streams, f"s{at}") for at in range(4)]
        for client in subscribers:
            await client.send(Subscribe(1, (Subscription("a/#", 1),)))
            assert isinstance(await client.next(), Suback)
        await publisher.send(*[Publish("a/b", bytes([at]), 1, packet_id=at + 1) for at in range(100)])
        assert [await publisher.next() for _ in range(100)] == [Puback(at + 1) for at in range(100)]
        for client in subscribers:
            got = [await client.next() for _ in range(100)]
            assert [packet.payload for packet in got] == [bytes([at]) for at in range(100)]  # type: ignore[union-attr]
        assert running.figures()["gateway_delivered_total"] == 400


async def test_a_port_in_use_is_one_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(AddressInUse, match="already in use"):
            await run(GatewaySettings(port=taken.getsockname()[1]), real_world(), LinkedBroker(real_world().clock))


async def test_an_unknown_host_is_one_clear_error() -> None:
    with pytest.raises(InvalidConfig, match=r"no\.such\.host"):
        await run(GatewaySettings(host="no.such.host.invalid", port=0), real_world(), LinkedBroker(real_world().clock))


async def test_several_gateways_may_share_a_port() -> None:
    async with serving(share_port=True) as first:
        again = partial(
            run, GatewaySettings(port=first.port, share_port=True), real_world(), LinkedBroker(real_world().clock)
        )
        async with trio.open_nursery() as nursery:
            second: RunningGateway = await nursery.start(again)
            assert second.port == first.port
            nursery.cancel_scope.cancel()


async def test_the_end_of_a_certificate_is_among_the_figures(tmp_path: Path) -> None:
    server = Authority(tmp_path).server
    async with serving(listeners=(f"tls 127.0.0.1:0 certificate={server}",)) as running:
        assert running.figures()['gateway_certificate_ends_at_s{listener="tls"}'] == ends_at(server.read_text())


async def test_connections_beyond_the_limit_are_closed_at_the_door(streams: list[trio.SocketStream]) -> None:
    async with serving(connections_max=1) as running:
        await connect(running, streams, "one")
        streams.append(await trio.open_tcp_stream("127.0.0.1", running.port))
        with trio.fail_after(PATIENCE_S):
            assert await streams[-1].receive_some() == b""
        assert running.figures()["gateway_refused_connections_max_total"] == 1


async def test_a_stop_tells_clients_publishes_wills_and_ends_soon(streams: list[trio.SocketStream]) -> None:
    broker = LinkedBroker(real_world().clock)
    with trio.fail_after(PATIENCE_S):
        async with serving(broker) as running:
            new = await connect(running, streams, "new", level=5, will=Will("w", b"gone", 1))
        assert await new.next() == Disconnect(0x8B)
        assert await new.next() is None
    assert broker.bodies() == [b"gone"]


async def test_a_client_that_does_not_read_is_bounded_and_others_are_served(streams: list[trio.SocketStream]) -> None:
    async with serving(output_bytes_max=64 * 1024) as running:
        slow, quick, publisher = [await connect(running, streams, name) for name in ("slow", "quick", "p")]
        for client in (slow, quick):
            await client.send(Subscribe(1, (Subscription("a", 0),)))
            await client.next()
        payload = bytes(10_000)
        for _ in range(200):
            await publisher.send(*[Publish("a", payload) for _ in range(5)])
            for _ in range(5):
                assert isinstance(await quick.next(), Publish)
        assert running.figures()["gateway_delivery_dropped_total"] > 0


async def test_a_signal_drains_the_process_and_a_clean_stop_takes_its_values_back(
    streams: list[trio.SocketStream],
) -> None:
    broker = LinkedBroker(real_world().clock)
    async with serving(broker, redirect_to="b:1883", drain_per_s=1000, sys_every_s=0.5, name="gw") as running:
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(obey, running, signals)
                client = await connect(running, streams, "c", 5)
                await client.send(Subscribe(1, (Subscription("$SYS/brokers/gw/clients/connected"),)))
                assert isinstance(await client.next(), Suback)
                told = await client.next()
                assert isinstance(told, Publish)
                assert told.payload in (b"0", b"1")
                os.kill(os.getpid(), signal.SIGUSR1)
                last = await client.next()
                while isinstance(last, Publish):
                    last = await client.next()
                assert isinstance(last, Disconnect)
                assert (last.reason_code, last.properties.server_reference) == (0x9C, "b:1883")
                nursery.cancel_scope.cancel()
        assert broker.retained()
    assert not broker.retained()


async def test_a_gateway_that_starts_on_a_wrong_clock_is_right_as_soon_as_the_clock_is(
    streams: list[trio.SocketStream],
) -> None:
    clock, broker, real = SetClock(), LinkedBroker(real_world().clock), real_world()
    clock.ahead_ms = 7_200_000
    world = World(clock, real.rng, real.offload, real.own_thread)
    async with trio.open_nursery() as nursery:
        running = await nursery.start(partial(run, GatewaySettings(port=0), world, broker))
        client = await connect(running, streams, "c", 5)
        rest = 2  # rounds after the broker was asked: then it has told its time
        while rest:
            await client.send(Publish("a", b"", 1, packet_id=1))
            assert await client.next() == Puback(1)
            rest -= bool(broker.made(Ping))
        clock.ahead_ms = 0
        assert running.figures()["process_clock_jump_s"] == 0
        assert running.figures()["process_clock_jumps_total"] == 0  # it was no jump, but the end of one
        nursery.cancel_scope.cancel()


async def test_a_hangup_has_the_access_rules_read_again_at_once(
    streams: list[trio.SocketStream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.login.verifier.LOOK_EVERY_S", 3600.0)  # so that nobody sees it by looking
    rules = tmp_path / "acl"
    rules.write_text("allow anonymous subscribe a\n")
    async with serving(acl_file=str(rules)) as running:
        with trio.open_signal_receiver(signal.SIGHUP) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(obey, running, signals)
                client = await connect(running, streams, "c")
                rules.write_text("allow anonymous subscribe b\n")
                os.kill(os.getpid(), signal.SIGHUP)
                suback = Suback(1, (0x80,))
                with trio.fail_after(PATIENCE_S):
                    while suback == Suback(1, (0x80,)):
                        await client.send(Subscribe(1, (Subscription("b", 1),)))
                        suback = await client.next()
                assert suback == Suback(1, (1,))
                await client.send(Subscribe(2, (Subscription("a", 1),)))
                assert await client.next() == Suback(2, (0x80,))
                nursery.cancel_scope.cancel()


async def test_many_clients_with_incomplete_packets_are_sent_away_and_others_are_served(
    streams: list[trio.SocketStream],
) -> None:
    async with serving(held_bytes_max=1024 * 1024) as running:
        bystander = await connect(running, streams, "bystander")
        greedy = [await connect(running, streams, f"greedy{at}", level=5) for at in range(20)]
        part = encode(Publish("u", bytes(200_000), 0), 5)[:100_000]
        for client in greedy:
            await client.stream.send_all(part)
        with trio.fail_after(PATIENCE_S):
            while running.figures()["gateway_refused_held_bytes_max_total"] < 10:
                await bystander.send(Publish("t", b"", 1, packet_id=1))
                assert await bystander.next() == Puback(1)
        assert running.figures()["gateway_refused_held_bytes_max_total"] == 10
        assert running.figures()["gateway_unfinished_bytes"] <= 1024 * 1024
