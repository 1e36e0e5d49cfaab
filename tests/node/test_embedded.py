from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

import broker.net.server
from broker.settings import BrokerSettings
from node import embedded, settings, up
from node.addresses import Addresses
from penstock.client.lasting_links import lasting_links
from penstock.client.wire_link import ask
from penstock.errors import DataFolderLocked, InvalidConfig, PenstockError
from penstock.protocol.requests.routes import QueryRoute, Route
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.service.cluster_secret import keep_secret
from penstock.service.service_main import expected_error
from penstock.world import real_world
from tests.node.stranger import check_refusals
from tests.patience import PATIENCE_S
from tests.penstock.native_access import access_files

pytestmark = pytest.mark.endtoend

ANY_PORTS = {"mqtt_port": 0, "broker_port": 0, "namesrv_port": 0, "http_port": 0}


def configuration(data: Path) -> settings.Configuration:
    return settings.load(None, {}, {**ANY_PORTS, "data": data})


async def test_all_services_answer_and_the_broker_is_registered_and_no_stranger_ends_or_takes_it(
    tmp_path: Path,
) -> None:
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        run = partial(embedded.run, configuration(tmp_path / "data"), real_world(), stop)
        addresses: Addresses = await nursery.start(run)
        async with lasting_links() as links:
            about = await ask(links.link(addresses.broker), Ping(), ServerInfo)
            route = await ask(links.link(addresses.namesrv), QueryRoute(""), Route)
        await check_refusals(addresses)
        live = await trio.to_thread.run_sync(_get, f"http://{addresses.http}/livez")
        metrics = await trio.to_thread.run_sync(_get, f"http://{addresses.http}/metrics")
        stop.set()
    assert about.role == "broker"
    assert [one.address for one in route.brokers] == [addresses.broker]
    assert live[0] == metrics[0] == 200
    assert "gateway_connections 0" in metrics[1]
    assert "rocketmq_messages_in_total 0" in metrics[1]


async def test_a_service_listens_where_its_own_section_says_and_the_others_stay_on_loopback(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[gateway]\nhost = "0.0.0.0"\n[broker]\nhost = "127.0.0.2"\n')
    chosen = settings.load(file, {}, {**ANY_PORTS, "data": tmp_path / "data"})
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        addresses: Addresses = await nursery.start(partial(embedded.run, chosen, real_world(), stop))
        stop.set()
    at = (addresses.mqtt, addresses.broker, addresses.namesrv, addresses.http)
    assert [one.rpartition(":")[0] for one in at] == ["0.0.0.0", "127.0.0.2", "127.0.0.1", "127.0.0.1"]


async def test_the_totals_of_a_run_are_there_where_the_status_pages_ask_for_tls_and_a_login(tmp_path: Path) -> None:
    authority, pem, ca = trustme.CA(), tmp_path / "server.pem", tmp_path / "ca.pem"
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(pem)
    authority.cert_pem.write_to_path(ca)
    access = {"password_file": access_files(tmp_path)["password_file"], "tls_certificate": pem, "peers_tls_ca": ca}
    file = tmp_path / "penstock.toml"
    file.write_text("".join([f'{name} = "{path}"\n' for name, path in access.items()]) + 'http_host = "0.0.0.0"\n')
    chosen = settings.load(file, {}, {**ANY_PORTS, "console_port": -1, "data": tmp_path / "data"})
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        addresses: Addresses = await nursery.start(partial(embedded.run, chosen, real_world(), stop))
        assert await up.totals(addresses) == up.RunTotals(0, 0)
        stop.set()


async def test_every_service_may_listen_on_ipv6_and_is_found_there(tmp_path: Path) -> None:
    chosen = settings.load(None, {}, {**ANY_PORTS, "data": tmp_path / "data", "host": "::1"})
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        addresses: Addresses = await nursery.start(partial(embedded.run, chosen, real_world(), stop))
        async with lasting_links() as links:
            route = await ask(links.link(addresses.namesrv), QueryRoute(""), Route)
            about = await ask(links.link(route.brokers[0].address), Ping(), ServerInfo)
        live = await trio.to_thread.run_sync(_get, f"http://{addresses.http}/livez")
        stop.set()
    assert (about.role, live[0]) == ("broker", 200)


@pytest.mark.parametrize("service", ["gateway", "broker", "namesrv"])
async def test_a_host_of_a_section_that_is_not_ours_is_an_error(tmp_path: Path, service: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(f'[{service}]\nhost = "203.0.113.1"\ninsecure = true\n')
    chosen = settings.load(file, {}, {**ANY_PORTS, "data": tmp_path / "data"})
    error: PenstockError | None = None
    try:
        await embedded.run(chosen, real_world(), trio.Event())
    except BaseExceptionGroup as group:
        error = expected_error(group)
    assert isinstance(error, InvalidConfig)


async def test_a_second_system_on_the_same_folder_is_refused_and_the_first_stays(tmp_path: Path) -> None:
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        run = partial(embedded.run, configuration(tmp_path / "data"), real_world(), stop)
        addresses: Addresses = await nursery.start(run)
        error: PenstockError | None = None
        try:
            await embedded.run(configuration(tmp_path / "data"), real_world(), trio.Event())
        except BaseExceptionGroup as group:
            error = expected_error(group)
        async with lasting_links() as links:
            await ask(links.link(addresses.broker), Ping(), ServerInfo)
        stop.set()
    assert isinstance(error, DataFolderLocked)


async def test_the_pages_say_what_the_broker_is_doing_while_it_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    chosen = settings.load(None, {}, {**ANY_PORTS, "data": tmp_path / "data", "http_port": port})
    stop, seen, world = trio.Event(), [], real_world()

    async def offload(work: Callable[[], Any]) -> Any:
        for path in ("livez", "readyz", "metrics"):
            seen.append(await trio.to_thread.run_sync(_get, f"http://127.0.0.1:{port}/{path}"))
        return await world.offload(work)

    async with trio.open_nursery() as nursery:
        await nursery.start(partial(embedded.run, chosen, replace(world, offload=offload), stop))
        ready, metrics = [
            await trio.to_thread.run_sync(_get, f"http://127.0.0.1:{port}/{path}") for path in ("readyz", "metrics")
        ]
        stop.set()
    assert seen[:2] == [(200, "ok\n"), (503, "broker: opening the store\n")]
    assert seen[2][0] == 200
    assert "namesrv_brokers 0" in seen[2][1]
    assert ready == (200, "ok\n")
    families = {kind: re.findall(f"^# {kind} (\\S+)", metrics[1], re.MULTILINE) for kind in ("HELP", "TYPE")}
    assert len(families["TYPE"]) > 100
    assert families["HELP"] == families["TYPE"], "a line in penstock/service/meanings.py"


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_brokers_with_the_secret_of_its_file_join_the_name_server_of_a_node(tmp_path: Path) -> None:
    file, stop = keep_secret(tmp_path), trio.Event()
    chosen = settings.load(None, {}, {**ANY_PORTS, "data": tmp_path / "data", "cluster_secret_file": str(file)})
    async with trio.open_nursery() as nursery:
        addresses: Addresses = await nursery.start(partial(embedded.run, chosen, real_world(), stop))
        other = BrokerSettings(
            name="other",
            port=0,
            data=tmp_path / "other",
            namesrv=(addresses.namesrv,),
            cluster_secret_file=str(file),
            segment_bytes=1 << 20,
        )
        running = await nursery.start(partial(broker.net.server.run, other, real_world()))
        async with lasting_links() as links:
            route = await ask(links.link(addresses.namesrv), QueryRoute(""), Route)
        assert ("other", f"127.0.0.1:{running.port}") in [(one.broker, one.address) for one in route.brokers]
        stop.set()
        nursery.cancel_scope.cancel()
