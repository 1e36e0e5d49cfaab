"""All services in one process, wired up without a hop: the default of `penstock up`.

They start bottom up (status pages, name server, broker, gateway) and stop top down: devices are disconnected first,
then the broker closes its log, then the name server and the pages end. The gateway calls this process's broker and name
server directly.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

import broker.net.server
import gateway.server
import namesrv.server
from node.addresses import Addresses
from node.local_link import LocalLinks
from node.services import console_server, events_server, rocketmq_server, service_settings
from node.settings import Configuration, access_of, console_may_act, gateway_name
from penstock.client.credentials import service_credentials
from penstock.client.lasting_links import lasting_links
from penstock.protocol.addresses import join_address
from penstock.protocol.link import Links
from penstock.service.cluster_secret import read_secret
from penstock.service.frame_connection import Peer
from penstock.service.readiness import STOPPING, Readiness
from penstock.service.status import pages_access, serve_status
from penstock.world import World, guarded, new_secret
from remoting.settings import RemotingSettings

_LOCAL_PEER = Peer(0, "in this process")


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
    node, readiness = configuration.node, Readiness()
    world, _ = guarded(world)  # one clock for all of them
    async with trio.open_nursery() as pages:
        told = (readiness.figures, readiness.reasons, node.http_hosts, pages_access(node, node.pages_host, world))
        http = await pages.start(partial(serve_status, node.pages_host, node.http_port, *told))
        async with trio.open_nursery() as bottom:
            secret = read_secret(Path(node.cluster_secret_file)) if node.cluster_secret_file else new_secret()
            settings = service_settings(configuration, "namesrv")
            names = await bottom.start(partial(namesrv.server.run, settings, world, secret=secret))
            readiness.add(names.figures, _prefixed("name server", names.reasons))
            names_at = join_address(names.host, names.port)
            async with trio.open_nursery() as middle:
                settings = service_settings(configuration, "broker", data=node.data, namesrv=(names_at,), **node.copies)
                tell = _begin_of(readiness)
                store = await middle.start(partial(broker.net.server.run, settings, world, tell=tell, secret=secret))
                readiness.add(store.figures, _prefixed("broker", store.reasons))
                store_at = join_address(store.host, store.port)
                who = service_credentials(secret, "gateway", node.peers_tls_ca, node.shown)
                async with lasting_links(credentials=who) as wire, trio.open_nursery() as top:
                    embedded = {
                        names_at: names.open_session(_LOCAL_PEER),
                        store_at: store.open_session(_LOCAL_PEER, ends_rounds=True),
                    }
                    links = LocalLinks(embedded, wire)
                    name = gateway_name(configuration, os.environ) or f"{store_at}-0"
                    settings = service_settings(configuration, "gateway", namesrv=(names_at,), name=name)
                    front = await top.start(partial(gateway.server.run, settings, world, links))
                    readiness.add(front.figures, _prefixed("gateway", front.reasons))
                    if signals is not None:
                        top.start_soon(gateway.server.obey, front, signals)
                    mqtt_at = join_address(front.host, front.port)
                    at = (mqtt_at, store_at, names_at, http, node.data)
                    addresses = Addresses(*at, readiness.figures, front.listeners)
                    addresses = await _serve_console(top, configuration, addresses, world, secret)
                    addresses = await _serve_rocketmq(top, configuration, addresses, world, links, readiness)
                    addresses = await _serve_events(top, configuration, addresses, world, links, readiness)
                    readiness.serves()
                    task_status.started(addresses)
                    await stop.wait()
                    readiness.begin(STOPPING)
                    top.cancel_scope.cancel()
                middle.cancel_scope.cancel()
            bottom.cancel_scope.cancel()
        pages.cancel_scope.cancel()


async def _serve_console(
    top: trio.Nursery, configuration: Configuration, at: Addresses, world: World, secret: bytes
) -> Addresses:
    """Starts the console if it is wanted; returns the addresses with its own."""
    if configuration.node.console_port < 0:
        return at
    settings = service_settings(configuration, "console", namesrv=(at.namesrv,))
    key = secret if console_may_act(configuration, os.environ) else None
    shown = await top.start(partial(console_server(), settings, world, is_port_wish=True, key=key))
    return replace(at, console=shown.url)


async def _serve_rocketmq(
    top: trio.Nursery, configuration: Configuration, at: Addresses, world: World, links: Links, readiness: Readiness
) -> Addresses:
    """Starts the front for RocketMQ's clients if it is wanted, with the users and rules of its broker; returns the
    addresses with its own."""
    node = configuration.node
    if not node.has_rocketmq:
        return at
    settings = RemotingSettings(
        host=node.host,
        port=node.rocketmq_port,
        namesrv_port=node.rocketmq_namesrv_port,
        insecure=node.insecure,
        broker=at.broker,
        namesrv=at.namesrv,
        **access_of(service_settings(configuration, "broker")),
    )
    front = await top.start(partial(rocketmq_server(), settings, world, links))
    readiness.add(front.figures, _prefixed("remoting", front.reasons))
    names_at = join_address(front.host, front.names_port)
    return replace(at, rocketmq=join_address(front.host, front.port), rocketmq_namesrv=names_at)


async def _serve_events(
    top: trio.Nursery, configuration: Configuration, at: Addresses, world: World, links: Links, readiness: Readiness
) -> Addresses:
    """Starts the event bridge if it is wanted; returns the addresses with its own."""
    if configuration.node.events_port < 0:
        return at
    settings = service_settings(configuration, "events", namesrv=(at.namesrv,))
    bridge = await top.start(partial(events_server(), settings, world, links))
    readiness.add(bridge.figures, _prefixed("events", bridge.reasons))
    return replace(at, events=join_address(bridge.host, bridge.port))


def _begin_of(readiness: Readiness) -> Callable[[str], None]:
    return lambda doing: readiness.begin(f"broker: {doing}")


def _prefixed(who: str, reasons: Callable[[], Sequence[str]]) -> Callable[[], Sequence[str]]:
    return lambda: [f"{who}: {reason}" for reason in reasons()]
