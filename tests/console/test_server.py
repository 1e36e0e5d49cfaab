from __future__ import annotations

import socket
import ssl
import time
from functools import partial
from pathlib import Path

import httpx
import jwt
import pytest
import trio
import trustme

from console.server import RunningConsole, run
from console.settings import ConsoleSettings
from penstock.errors import AddressInUse, InvalidConfig
from penstock.service.service_main import expected_error
from penstock.world import real_world
from tests.console.browser import Site
from tests.patience import PATIENCE_S, poll_async

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
        settings = ConsoleSettings(port=0, namesrv=(site.servers,), tls_certificate=str(pem))
        running: RunningConsole = await nursery.start(partial(run, settings, real_world()))
        async with httpx.AsyncClient(verify=False) as client:
            answer = await client.get(running.url)
        assert running.url.startswith("https://127.0.0.1:")
        assert "secure" in answer.headers["set-cookie"].lower()
        nursery.cancel_scope.cancel()


async def test_a_token_or_a_certificate_logs_in_and_renewed_certificates_count_at_once(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.service.access_files.LOOK_EVERY_S", 0.01)
    first, second = trustme.CA(), trustme.CA()
    pem, ca, ada = tmp_path / "server.pem", tmp_path / "ca.pem", tmp_path / "ada.pem"
    first.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
    first.cert_pem.write_to_path(str(ca))
    first.issue_cert("x", common_name="ada").private_key_and_cert_chain_pem.write_to_path(str(ada))
    (tmp_path / "key").write_text("k" * 40)
    settings = ConsoleSettings(
        port=0,
        namesrv=(site.servers,),
        jwt_key_file=str(tmp_path / "key"),
        tls_certificate=str(pem),
        tls_client_ca=str(ca),
        tls_clients="optional",
    )
    plain, shows = ssl.create_default_context(cafile=ca), ssl.create_default_context(cafile=ca)
    shows.load_cert_chain(ada)
    async with trio.open_nursery() as nursery:
        running: RunningConsole = await nursery.start(partial(run, settings, real_world()))
        async with httpx.AsyncClient(verify=shows, base_url=running.url, timeout=PATIENCE_S) as client:
            assert "Log out ada" in (await client.get("/topics")).text
            cookies = client.cookies
        async with httpx.AsyncClient(verify=plain, base_url=running.url, timeout=PATIENCE_S, cookies=cookies) as client:
            assert (await client.get("/topics")).status_code == 303, "without the certificate, which may be revoked"
        async with httpx.AsyncClient(verify=plain, base_url=running.url, timeout=PATIENCE_S) as client:
            assert (await client.get("/topics")).status_code == 303
            wrong = jwt.encode({"sub": "eve", "exp": 1}, "k" * 40, "HS256")
            assert (await client.post("/login", data={"token": wrong})).status_code == 403
            right = jwt.encode({"sub": "eve", "exp": int(time.time()) + 3600}, "k" * 40, "HS256")
            assert "Or a token" in (await client.get("/login")).text
            await client.post("/login", data={"token": right})
            assert "Log out eve" in (await client.get("/topics")).text
        second.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
        await poll_async("the renewed certificate", lambda: answers(running.url, second))
        nursery.cancel_scope.cancel()


async def answers(url: str, authority: trustme.CA) -> bool:
    """Whether a console has a certificate of this authority."""
    alone = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    try:
        async with httpx.AsyncClient(verify=alone, timeout=PATIENCE_S) as client:
            return (await client.get(url)).status_code == 303
    except httpx.ConnectError:
        return False


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


@pytest.mark.parametrize("wrong", [{"tls_certificate": "/nowhere.pem"}, {"password_file": "/nowhere"}])
async def test_files_that_are_not_there_are_an_error(site: Site, wrong: dict[str, str]) -> None:
    error = None
    try:
        await run(ConsoleSettings(port=0, namesrv=(site.servers,), **wrong), real_world())
    except InvalidConfig as caught:
        error = caught
    except BaseExceptionGroup as group:
        error = expected_error(group)
    assert isinstance(error, InvalidConfig)
