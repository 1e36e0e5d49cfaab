"""All services in one process, wired up without a hop: the default of `penstock up`.

Started bottom up (name server, broker, gateway, status), stopped top down: devices are told first, then the broker
closes its log, the name server goes last. What the gateway asks of this process's broker and name server is a
function call.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import trio

import broker.server
import gateway.server
import namesrv.server
from broker.server import RunningBroker
from broker.settings import BrokerSettings
from gateway.server import RunningGateway
from gateway.settings import GatewaySettings
from namesrv.settings import NamesrvSettings
from node.addresses import Addresses
from node.local_link import LocalLinks
from node.settings import SERVICES, Configuration, gateway_name, listeners, place
from penstock import config, footprint
from penstock.addresses import join_address
from penstock.frame_server import Peer
from penstock.lasting_links import lasting_links
from penstock.status import serve_status
from penstock.world import World

_SETTINGS: Mapping[str, type[Any]] = {"namesrv": NamesrvSettings, "broker": BrokerSettings, "gateway": GatewaySettings}
assert set(_SETTINGS) == set(SERVICES)
_LOCAL_PEER = Peer(0, "in this process")


def service_settings(configuration: Configuration, service: str, **given: object) -> Any:
    """Settings of one service: its table in the file, its environment, then what the node decides."""
    table, prefix = configuration.services[service], f"PENSTOCK_{service.upper()}"
    return config.load_table(_SETTINGS[service], table, os.environ, prefix, given, source=f"[{service}]")


async def run(
    configuration: Configuration,
    world: World,
    stop: trio.Event,
    signals: AsyncIterable[int] | None = None,
    *,
    task_status: trio.TaskStatus[Addresses] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs the services until ``stop`` is set, then stops them in order. ``signals`` are the operator's, for the
    gateway."""
    node = configuration.node
    async with trio.open_nursery() as bottom:
        settings = service_settings(configuration, "namesrv", **place(configuration, "namesrv", os.environ))
        names = await bottom.start(partial(namesrv.server.run, settings, world))
        names_at = join_address(names.host, names.port)
        async with trio.open_nursery() as middle:
            given = place(configuration, "broker", os.environ) | {"data": node.data, "namesrv": (names_at,)}
            settings = service_settings(configuration, "broker", **given)
            store = await middle.start(partial(broker.server.run, settings, world))
            store_at = join_address(store.host, store.port)
            async with lasting_links() as wire, trio.open_nursery() as top:
                embedded = {
                    names_at: names.open_session(_LOCAL_PEER),
                    store_at: store.open_session(_LOCAL_PEER, ends_rounds=True),
                }
                links = LocalLinks(embedded, wire)
                name = gateway_name(configuration, os.environ) or f"{store_at}-0"
                given = place(configuration, "gateway", os.environ) | listeners(configuration, os.environ)
                given |= {"namesrv": (names_at,), "name": name}
                settings = service_settings(configuration, "gateway", **given)
                front = await top.start(partial(gateway.server.run, settings, world, links))
                if signals is not None:
                    top.start_soon(gateway.server.obey, front, signals)
                http = await top.start(
                    partial(serve_status, node.host, node.http_port, _figures(store, front), _reasons(front))
                )
                mqtt_at = join_address(front.host, front.port)
                task_status.started(Addresses(mqtt_at, store_at, names_at, http, node.data, front.listeners))
                await stop.wait()
                top.cancel_scope.cancel()
            middle.cancel_scope.cancel()
        bottom.cancel_scope.cancel()


def _reasons(front: RunningGateway) -> Callable[[], Awaitable[Sequence[str]]]:
    async def read() -> Sequence[str]:
        return [f"gateway: {reason}" for reason in front.health.reasons()]

    return read


def _figures(store: RunningBroker, front: RunningGateway) -> Callable[[], Awaitable[Mapping[str, float]]]:
    async def read() -> Mapping[str, float]:
        return {**store.figures(), **front.figures.read(), **footprint.read()}

    return read
