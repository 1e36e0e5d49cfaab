from __future__ import annotations

import socket
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
import trustme

from console.server import RunningConsole, run
from console.settings import ConsoleSettings
from penstock.errors import AddressInUse, InvalidConfig
from penstock.service.service_main import expected_error
from penstock.world import real_world
from tests.console.browser import Site

pytestmark = pytest.mark.endtoend


async def test_a_console_serves_over_http_and_says_where(site: Site) -> None:
    async with trio.open_nursery() as nursery:
        settings = ConsoleSettings(port=0, namesrv=(site.servers,))
        running: RunningConsole = await nursery.start(partial(run, settings, real_world()))
        async with httpx.AsyncClient() as client:
            assert "Overview" in (await client.get(running.url)).text
        assert (running.reasons(), running.figures()) == ([], {})
        nursery.cancel_scope.cancel()


async def test_with_a_certificate_it_speaks_https_and_its_cookie_is_for_that_alone(site: Site, tmp_path: Path) -> None:
    authority = trustme.CA()
    pem = tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    async with trio.open_nursery() as nursery:
        settings = ConsoleSettings(port=0, namesrv=(site.servers,), certificate=str(pem))
        running: RunningConsole = await nursery.start(partial(run, settings, real_world()))
        async with httpx.AsyncClient(verify=False) as client:
            answer = await client.get(running.url)
        assert running.url.startswith("https://127.0.0.1:")
        assert "secure" in answer.headers["set-cookie"].lower()
        nursery.cancel_scope.cancel()


async def test_a_port_in_use_is_an_error_unless_any_will_do(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = ConsoleSettings(port=port, namesrv=(site.servers,))
        with pytest.raises(AddressInUse):
            await run(settings, real_world())
        async with trio.open_nursery() as nursery:
            running = await nursery.start(partial(run, settings, real_world(), is_port_wish=True))
            assert running.port not in (0, port)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("wrong", [{"certificate": "/nowhere.pem"}, {"password_file": "/nowhere"}])
async def test_files_that_are_not_there_are_an_error(site: Site, wrong: dict[str, str]) -> None:
    error = None
    try:
        await run(ConsoleSettings(port=0, namesrv=(site.servers,), **wrong), real_world())
    except InvalidConfig as caught:
        error = caught
    except BaseExceptionGroup as group:
        error = expected_error(group)
    assert isinstance(error, InvalidConfig)
