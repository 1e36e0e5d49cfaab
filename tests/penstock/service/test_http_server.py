"""TLS of HTTP servers, over real sockets."""

from __future__ import annotations

import logging
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
import trustme
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from penstock.service.certificates import Certificates, Files
from penstock.service.http_server import HTTP, HttpLimits, serve_http, shown_certificate
from penstock.service.status import open_socket
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend  # sockets need real time
LIMITS = HttpLimits(PATIENCE_S)


async def tell_who(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers with the name in the client's certificate."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
    await PlainTextResponse(f"{Request(scope).url.scheme} {shown_certificate()[0]}")(scope, receive, send)


class Authority:
    """One that signs certificates, and their files."""

    def __init__(self, folder: Path) -> None:
        self.ca, self.folder = trustme.CA(), folder
        self.ca.cert_pem.write_to_path(folder / "ca.pem")

    def issue(self, file: str, name: str) -> Path:
        given = self.ca.issue_cert("127.0.0.1", common_name=name)
        given.private_key_and_cert_chain_pem.write_to_path(self.folder / file)
        return self.folder / file

    def context(self, shows: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        if shows is not None:
            context.load_cert_chain(shows)
        return context


@asynccontextmanager
async def served(certificates: Certificates | None) -> AsyncIterator[str]:
    listening = open_socket("127.0.0.1", 0)
    host, port = listening.getsockname()
    log = logging.getLogger("test")
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_http, tell_who, listening, certificates, log, LIMITS))
        yield f"{host}:{port}"
        nursery.cancel_scope.cancel()


async def asked(address: str, context: ssl.SSLContext | None) -> str:
    scheme = "https" if context else "http"
    async with httpx.AsyncClient(verify=context or False, timeout=PATIENCE_S) as client:
        return (await client.get(f"{scheme}://{address}/")).text


async def test_a_request_is_of_whom_the_certificate_of_its_own_connection_names(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem = authority.issue("server.pem", "server")
    contexts = {name: authority.context(authority.issue(f"{name}.pem", name)) for name in ("ada", "bob")}
    contexts[""] = authority.context()
    async with served(Certificates(Files(str(pem), "", str(tmp_path / "ca.pem"), "optional"), HTTP)) as address:
        for name in ("ada", "", "bob", "ada"):
            assert await asked(address, contexts[name]) == f"https {name}"


async def test_whoever_shows_no_certificate_where_one_is_required_or_speaks_old_tls_or_none_gets_no_answer(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    pem = authority.issue("server.pem", "server")
    old = authority.context(pem)
    old.set_ciphers("DEFAULT:@SECLEVEL=0")  # or it is the client that refuses
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    async with served(Certificates(Files(str(pem), "", str(tmp_path / "ca.pem"), "required"), HTTP)) as address:
        for context in (authority.context(), old, None):
            with pytest.raises(httpx.TransportError):
                await asked(address, context)
        assert await asked(address, authority.context(pem)) == "https server"


async def test_a_renewed_certificate_serves_the_next_connection(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem = authority.issue("server.pem", "server")
    certificates = Certificates(Files(str(pem)), HTTP)
    async with served(certificates) as address:
        context = authority.context()
        assert await asked(address, context) == "https "
        other = Authority(tmp_path)
        other.issue("server.pem", "server")
        assert certificates.refresh()
        assert await asked(address, other.context()) == "https "
        with pytest.raises(httpx.ConnectError):
            await asked(address, context)


async def test_without_certificates_it_speaks_http(tmp_path: Path) -> None:
    async with served(None) as address:
        assert await asked(address, None) == "http "
