"""The status pages over real HTTP on the loopback interface."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from penstock.errors import AddressInUse, InvalidConfig, Unavailable
from penstock.status import Figures, Reasons, open_socket, serve_status

pytestmark = pytest.mark.endtoend  # sockets need real time


async def figures() -> Mapping[str, float]:
    return {"messages_total": 7.0}


async def no_figures() -> Mapping[str, float]:
    raise Unavailable("the broker does not answer")


async def no_reasons() -> list[str]:
    return []


async def starting() -> list[str]:
    return ["the broker is starting"]


@asynccontextmanager
async def served(figures: Figures, reasons: Reasons = no_reasons) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        address: str = await nursery.start(partial(serve_status, "127.0.0.1", 0, figures, reasons))
        yield address
        nursery.cancel_scope.cancel()


async def fetch(address: str, path: str, method: str = "GET", accept: str = "*/*") -> tuple[int, dict[str, str], str]:
    """Status, headers and body of one request."""
    host, _, port = address.rpartition(":")
    with trio.fail_after(5):
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            request = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
            await stream.send_all(request.encode())
            said = b"".join([part async for part in stream])
    head, _, body = said.decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    return int(first.split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}, body


async def test_the_pages_of_a_healthy_system() -> None:
    async with served(figures) as address:
        assert (await fetch(address, "/livez"))[::2] == (200, "ok\n")
        assert (await fetch(address, "/readyz"))[::2] == (200, "ok\n")
        status, headers, body = await fetch(address, "/healthz")
        assert (status, headers["content-type"], json.loads(body)) == (
            200,
            "application/json",
            {"status": "ok", "reasons": []},
        )
        status, headers, body = await fetch(address, "/metrics")
        assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert body == "# TYPE messages_total counter\nmessages_total 7\n"


async def test_a_scraper_that_asks_for_openmetrics_gets_it() -> None:
    async with served(figures) as address:
        _, headers, body = await fetch(
            address, "/metrics", accept="application/openmetrics-text;version=1.0.0,*/*;q=0.1"
        )
        assert headers["content-type"].startswith("application/openmetrics-text")
        assert body == "# TYPE messages counter\nmessages_total 7\n# EOF\n"
        for refused in (
            "application/openmetrics-text;version=1.0.0;q=0, text/plain",
            "application/openmetrics-text; q=0.0",
        ):
            assert (await fetch(address, "/metrics", accept=refused))[1]["content-type"].startswith("text/plain")


async def test_a_system_that_cannot_be_read_is_alive_but_not_ready() -> None:
    async with served(no_figures, starting) as address:
        assert (await fetch(address, "/livez"))[0] == 200
        assert (await fetch(address, "/readyz"))[::2] == (503, "the broker is starting\n")
        assert (await fetch(address, "/metrics"))[0] == 503
        status, _, body = await fetch(address, "/healthz")
        assert (status, json.loads(body)) == (200, {"status": "degraded", "reasons": ["the broker is starting"]})


async def test_a_full_disk_is_degraded_and_still_ready() -> None:
    async def full() -> dict[str, float]:
        return {"penstock_disk_full": 1}

    async with served(full) as address:
        assert (await fetch(address, "/readyz"))[0] == 200
        state = json.loads((await fetch(address, "/healthz"))[2])
        assert state["status"] == "degraded"
        assert "the disk is full" in state["reasons"][0]


async def test_reasons_of_the_caller_count() -> None:
    async with served(figures, starting) as address:
        assert (await fetch(address, "/readyz"))[::2] == (503, "the broker is starting\n")
        assert (await fetch(address, "/metrics"))[0] == 200


async def test_unknown_pages_and_other_methods_are_refused() -> None:
    async with served(figures) as address:
        status, _, body = await fetch(address, "/../etc/passwd")
        assert status == 404
        assert "/metrics" in body
        assert (await fetch(address, "/metrics", method="POST"))[0] == 405
        status, headers, body = await fetch(address, "/livez", method="HEAD")
        assert (status, headers["content-length"], body) == (200, "3", "")


async def test_garbage_and_an_endless_header_reach_nobody_else() -> None:
    async with served(figures) as address:
        host, _, port = address.rpartition(":")
        for hostile in (bytes(range(256)) * 4, b"GET /livez HTTP/1.1\r\nA: " + b"a" * 100_000):
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                with trio.fail_after(5):
                    try:
                        await stream.send_all(hostile)
                        said = b"".join([part async for part in stream])
                    except trio.BrokenResourceError:
                        said = b""
                assert b"200" not in said[:20]
        assert (await fetch(address, "/livez"))[0] == 200


async def test_a_taken_port_and_a_foreign_host_are_clear_errors() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(AddressInUse, match=f"127.0.0.1:{port} is already in use"):
            await serve_status("127.0.0.1", port, figures, no_reasons)
    with pytest.raises(InvalidConfig, match="cannot listen on"):
        await serve_status("203.0.113.1", 0, figures, no_reasons)


@pytest.mark.parametrize("host", ["", "a..b", pytest.param("\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 64, id="long")])
def test_what_is_no_host_is_a_clear_error_and_never_every_interface(host: str) -> None:
    with pytest.raises(InvalidConfig, match="cannot listen on"):
        open_socket(host, 0).close()


async def test_the_port_is_free_again_after_the_end() -> None:
    async with served(figures) as address:
        pass
    with pytest.raises(OSError, match="connect"):
        await fetch(address, "/livez")
