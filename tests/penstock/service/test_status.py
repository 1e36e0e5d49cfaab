"""The status pages over real HTTP on the loopback interface."""

from __future__ import annotations

import itertools
import json
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
import trio.testing
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import AddressInUse, InvalidConfig, Unavailable
from penstock.service.access_settings import AccessSettings
from penstock.service.status import (
    REQUEST_BYTES_MAX,
    Figures,
    Reasons,
    host_of,
    is_own,
    open_socket,
    pages_access,
    serve_status,
)
from penstock.world import real_world
from tests.patience import PATIENCE_S
from tests.penstock.native_access import access_files

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
async def served(figures: Figures, reasons: Reasons = no_reasons, hosts: Sequence[str] = ()) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        address: str = await nursery.start(partial(serve_status, "127.0.0.1", 0, figures, reasons, hosts))
        yield address
        nursery.cancel_scope.cancel()


async def fetch(
    address: str, path: str, method: str = "GET", accept: str = "*/*", host: str = ""
) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of one request."""
    host = host or address
    request = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    head, _, body = (await exchange(address, [request.encode()])).decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    return int(first.split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}, body


async def exchange(address: str, pieces: Sequence[bytes]) -> bytes:
    """What is answered to a request that is sent in these pieces."""
    host, _, port = address.rpartition(":")
    with trio.fail_after(PATIENCE_S):
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            for piece in pieces[:-1]:
                await stream.send_all(piece)
                await trio.testing.wait_all_tasks_blocked()  # the server has read it
            await stream.send_all(pieces[-1])
            return b"".join([part async for part in stream])


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


async def test_a_clock_that_has_jumped_is_degraded_and_still_ready() -> None:
    async def jumped() -> dict[str, float]:
        return {"process_clock_jump_s": -3600.0}

    async with served(jumped) as address:
        assert (await fetch(address, "/readyz"))[0] == 200
        state = json.loads((await fetch(address, "/healthz"))[2])
        assert state == {
            "status": "degraded",
            "reasons": ["the machine's clock has jumped by -3600 s, which is not believed yet"],
        }


async def test_reasons_of_the_caller_count() -> None:
    async with served(figures, starting) as address:
        assert (await fetch(address, "/readyz"))[::2] == (503, "the broker is starting\n")
        assert (await fetch(address, "/metrics"))[0] == 200


HOSTS = [
    ("localhost", True),
    ("LocalHost.:8080", True),
    ("127.0.0.1", True),
    ("127.8.8.8:1", True),
    ("[::1]:8080", True),
    ("evil.example", False),
    ("evil.example:8080", False),
    ("localhost.evil.example", False),
    ("127.0.0.1.evil.example", False),
    ("10.0.0.1", False),
    ("[2001:db8::1]:80", False),
    ("localhost@evil.example", False),
]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/metrics", "/other"])
async def test_a_host_that_is_not_this_machines_gets_nothing(path: str) -> None:
    async with served(figures) as address:
        for host, is_here in HOSTS:
            status, _, body = await fetch(address, path, host=host)
            assert (status == 421) != is_here, host
            assert is_here or "status_hosts" in body


async def test_a_host_that_the_setting_lists_is_served_whatever_its_port() -> None:
    for listed in (["metrics.example"], ["METRICS.example:8080", "other"], ["*"]):
        async with served(figures, hosts=listed) as address:
            for host in ("metrics.example", "Metrics.Example:9", "metrics.example.:80"):
                assert (await fetch(address, "/metrics", host=host))[0] == 200
            assert (await fetch(address, "/metrics", host="a.metrics.example"))[0] == (200 if "*" in listed else 421)


async def test_a_request_of_http_1_0_needs_no_host() -> None:
    async with served(figures) as address:
        assert (await exchange(address, [b"GET /livez HTTP/1.0\r\n\r\n"])).split()[1] == b"200"


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("a.example", "a.example"),
        (" A.Example.:80 ", "a.example"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("[::1]:80", "::1"),
        ("a:b", "a:b"),
        ("", ""),
        (":", ""),
    ],
)
def test_the_host_is_read_without_its_port(text: str, host: str) -> None:
    assert host_of(text) == host


def test_the_address_that_a_connection_came_to_is_its_own_host() -> None:
    assert is_own("10.0.0.5", "10.0.0.5")
    assert is_own("fe80::1", "fe80::1%eth0")
    assert not is_own("10.0.0.6", "10.0.0.5")
    assert not is_own("a.example", "a.example")  # a name, wherever it leads to


async def are_served(cuts: Sequence[Sequence[bytes]]) -> list[bool]:
    """Whether a request is served that is cut in several ways."""
    answers = []
    async with served(figures) as address:
        for pieces in cuts:
            try:
                answers.append((await exchange(address, pieces)).split()[1] == b"200")
            except trio.BrokenResourceError:  # it is refused and closed before all of it is sent
                answers.append(False)
    return answers


@settings(max_examples=40, deadline=None)
@given(
    size=st.sampled_from([10, 8_000, REQUEST_BYTES_MAX - 1000, REQUEST_BYTES_MAX + 1000, 60_000, 300_000]),
    start=st.sampled_from(
        [b"GET /livez HTTP/1.1\r\n", b"HEAD /livez HTTP/1.1\r\n", b"\x10\x0e", b"GET /livez\r\n", b"\n"]
    ),
    places=st.lists(st.integers(0, 1 << 20), max_size=6),
)
def test_any_cutting_of_any_request_is_served_or_refused_alike(size: int, start: bytes, places: list[int]) -> None:
    asked = start + b"Host: localhost\r\nConnection: close\r\nCookie: " + b"c" * size + b"\r\n\r\n"
    edges = [0, *sorted({place % len(asked) for place in places} - {0}), len(asked)]
    cuts = [asked], [asked[left:right] for left, right in itertools.pairwise(edges)]
    assert trio.run(are_served, cuts) == [size <= REQUEST_BYTES_MAX and b"/livez HTTP" in start] * 2


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
                with trio.fail_after(PATIENCE_S):
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


async def test_pages_with_users_tell_figures_to_those_who_may_view_and_over_tls_alone(tmp_path: Path) -> None:
    authority = trustme.CA()
    pem = tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    settings = AccessSettings(**access_files(tmp_path), tls_certificate=str(pem))
    assert pages_access(settings, "127.0.0.1", real_world()) is None
    access = pages_access(settings, "0.0.0.0", real_world())
    async with trio.open_nursery() as nursery:
        given = ("127.0.0.1", 0, figures, starting, (), access)
        address: str = await nursery.start(partial(serve_status, *given))
        with pytest.raises(httpx.TransportError):
            async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
                await client.get(f"http://{address}/livez")
        async with httpx.AsyncClient(base_url=f"https://{address}", verify=context, timeout=PATIENCE_S) as client:
            told = {path: await client.get(path) for path in ("/livez", "/readyz", "/healthz", "/metrics", "/other")}
            assert {path: one.status_code for path, one in told.items()} == {
                **{"/livez": 200, "/readyz": 503, "/healthz": 401, "/metrics": 401, "/other": 401}
            }
            assert told["/readyz"].text == "not ready\n", "why is for those who may view"
            assert told["/metrics"].headers["www-authenticate"].startswith("Basic")
            for login, status in (
                (("auditor", "ledger"), 200),
                (("auditor", "wrong"), 401),
                (("billing", "pencil"), 403),
            ):
                assert (await client.get("/metrics", auth=login)).status_code == status
        nursery.cancel_scope.cancel()
