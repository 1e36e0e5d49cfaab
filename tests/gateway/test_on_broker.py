"""The gateway, the broker and the name server on wire links, as processes have them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from stream_client import Client

import broker.net.server
import gateway.server
import namesrv.server
from broker.settings import BrokerSettings
from gateway.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish, Pubrec, Suback, Subscribe, Subscription
from gateway.mqtt.properties import Properties
from gateway.settings import GatewaySettings
from namesrv.settings import NamesrvSettings
from penstock import Consumer
from penstock.client.lasting_links import lasting_links
from penstock.world import real_world
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend


@asynccontextmanager
async def house(data: Path, **settings: Any) -> AsyncIterator[tuple[int, str]]:
    """All three services on wire links; gives the MQTT port and the name server."""
    world = real_world()
    async with trio.open_nursery() as bottom, lasting_links() as links:
        names = await bottom.start(partial(namesrv.server.run, NamesrvSettings(port=0), world))
        namesrv_at = (f"{names.host}:{names.port}",)
        await bottom.start(
            partial(broker.net.server.run, BrokerSettings(port=0, data=data, namesrv=namesrv_at, **settings), world)
        )
        async with trio.open_nursery() as top:
            ours = GatewaySettings(port=0, namesrv=namesrv_at)
            running = await top.start(partial(gateway.server.run, ours, world, links))
            with trio.fail_after(PATIENCE_S):
                yield running.port, namesrv_at[0]
            top.cancel_scope.cancel()
        bottom.cancel_scope.cancel()


async def connect(port: int, client_id: str, *, clean_start: bool = True) -> Client:
    client = Client(await trio.open_tcp_stream("127.0.0.1", port), 4)
    await client.send(Connect(client_id, clean_start))
    assert isinstance(await client.next(), Connack)
    return client


async def subscribe(client: Client, filter: str, qos: int) -> None:
    await client.send(Subscribe(1, (Subscription(filter, qos),)))
    assert isinstance(await client.next(), Suback)


@pytest.mark.parametrize("level", ["cache", "disk"])
async def test_a_device_is_told_the_level_of_the_topic(tmp_path: Path, level: str) -> None:
    asks = Properties(user_properties=(("penstock-level", "true"),))
    async with house(tmp_path / "data", default_level=level) as (port, _):
        client = Client(await trio.open_tcp_stream("127.0.0.1", port), 5)
        await client.send(Connect("d1", level=5, properties=asks))
        connack = await client.next()
        assert isinstance(connack, Connack)
        assert connack.properties.user_properties == asks.user_properties
        await client.send(Publish("plant/x", b"1", 1, packet_id=1))
        assert await client.next() == Puback(1, 0, Properties(user_properties=(("penstock-level", level),)))
        await client.stream.aclose()


@pytest.mark.parametrize("expiry_s", [0, 60])
@pytest.mark.parametrize(("limit", "way"), [("filters_max", ""), ("shares_max", "$share/g/")])
async def test_a_filter_too_many_is_told_so_and_takes_no_other_filter_with_it(
    tmp_path: Path, expiry_s: int, limit: str, way: str
) -> None:
    async with house(tmp_path, **{limit: 2}) as (port, _):
        client = Client(await trio.open_tcp_stream("127.0.0.1", port), 5)
        await client.send(Connect("c", level=5, properties=Properties(session_expiry_interval=expiry_s)))
        assert isinstance(await client.next(), Connack)
        codes = []
        for filters in (("a", "b"), ("too many", "a", "b")):
            await client.send(Subscribe(1, tuple([Subscription(way + one, 1) for one in filters])))
            answer = await client.next()
            assert isinstance(answer, Suback)
            codes.append(answer.reason_codes)
        assert codes == [(1, 1), (0x97, 1, 1)]
        assert "is reached" in (answer.properties.reason_string or "")
        await client.send(Publish("a", b"still", 1, packet_id=1))
        got = [await client.next(), await client.next()]
        assert [one.payload for one in got if isinstance(one, Publish)] == [b"still"]
        await client.stream.aclose()


async def test_retained_live_and_offline_messages_come_in_order_and_once(tmp_path: Path) -> None:
    async with house(tmp_path) as (port, _):
        publisher = await connect(port, "p")
        await publisher.send(Publish("t/1", b"retained", 1, retain=True, packet_id=1))
        assert await publisher.next() == Puback(1)
        subscriber = await connect(port, "s", clean_start=False)
        await subscribe(subscriber, "t/+", 1)
        first = await subscriber.next()
        assert isinstance(first, Publish)
        assert (first.payload, first.retain) == (b"retained", True)
        await subscriber.send(Puback(first.packet_id), Disconnect())
        assert await subscriber.next() is None
        await publisher.send(*[Publish(f"t/{at % 3}", bytes([at]), 1 + at % 2, packet_id=at + 1) for at in range(50)])
        answers = [await publisher.next() for _ in range(50)]
        assert answers == [Pubrec(at + 1) if at % 2 else Puback(at + 1) for at in range(50)]
        again = await connect(port, "s", clean_start=False)
        await publisher.send(Publish("t/9", b"live"))
        got = [await again.next() for _ in range(51)]
        assert [packet.payload for packet in got] == [*[bytes([at]) for at in range(50)], b"live"]  # type: ignore[union-attr]
        for client in (publisher, subscriber, again):
            await client.stream.aclose()


async def test_overlapping_filters_of_many_sessions_deliver_each_message_once(tmp_path: Path) -> None:
    async with house(tmp_path) as (port, _):
        publisher = await connect(port, "p")
        subscribers = [await connect(port, f"s{at}") for at in range(5)]
        for client in subscribers:
            for one in ("a/#", "a/+", "#"):
                await subscribe(client, one, 1)
        await publisher.send(*[Publish("a/b", bytes([at]), 1, packet_id=at + 1) for at in range(40)])
        for client in subscribers:
            got = [await client.next() for _ in range(40)]
            assert [packet.payload for packet in got] == [bytes([at]) for at in range(40)]  # type: ignore[union-attr]
        for client in (publisher, *subscribers):
            await client.stream.aclose()


async def test_history_is_replayed_and_a_named_position_is_shared_with_a_native_consumer(tmp_path: Path) -> None:
    async with house(tmp_path) as (port, names):
        publisher = await connect(port, "p")
        await publisher.send(*[Publish(f"t/{at % 3}", bytes([at]), 1, packet_id=at + 1) for at in range(30)])
        assert [await publisher.next() for _ in range(30)] == [Puback(at + 1) for at in range(30)]
        properties = Properties(
            user_properties=(
                ("penstock-start", "named=billing"),
                ("penstock-start", "beginning"),
                ("penstock-place", "true"),
            )
        )
        client = Client(await trio.open_tcp_stream("127.0.0.1", port), 5)
        await client.send(Connect("s", level=5), Subscribe(1, (Subscription("t/#", 1),), properties))
        assert isinstance(await client.next(), Connack)
        assert isinstance(await client.next(), Suback)
        got = [packet for packet in [await client.next() for _ in range(30)] if isinstance(packet, Publish)]
        assert [packet.payload for packet in got] == [bytes([at]) for at in range(30)]
        places = [dict(packet.properties.user_properties) for packet in got]
        assert [int(place["penstock-offset"]) for place in places] == list(range(30))
        await client.send(*[Puback(packet.packet_id) for packet in got[:20]], Disconnect())
        assert await client.next() is None
        await publisher.send(Publish("t/0", bytes([30]), 1, packet_id=1))
        assert await publisher.next() == Puback(1)
        seen: list[bytes] = []
        async with Consumer("billing", ["t"], servers=names, start="latest") as consumer:
            async for batch in consumer:
                seen += [message.body for message in batch]
                if len(seen) >= 11:
                    break
        assert seen == [bytes([at]) for at in range(20, 31)]
        for one in (publisher, client):
            await one.stream.aclose()
