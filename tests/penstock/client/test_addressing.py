from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import Admin, blocking
from penstock.client.addressing import FRESH_S, RETRY_S, VARIABLE, NameServers
from penstock.errors import InvalidConfig, Unavailable
from penstock.protocol.addresses import SERVERS
from tests.penstock.hand_clock import HandClock


class AddressServer:
    """Answers each question with ``said``; none where that is empty."""

    def __init__(self) -> None:
        self.said = ""
        self.asked = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                self.send_response(200 if outer.said else 503)
                self.end_headers()
                self.wfile.write(outer.said.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/rocketmq/nsaddr"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def address_server() -> Iterator[AddressServer]:
    server = AddressServer()
    yield server
    server.stop()


def test_what_a_program_says_counts_then_the_environment_then_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    monkeypatch.delenv(VARIABLE, raising=False)
    assert NameServers(SERVERS, clock).addresses == (SERVERS,)
    monkeypatch.setenv(VARIABLE, "a:1,b:2")
    assert NameServers(SERVERS, clock).addresses == ("a:1", "b:2")
    assert NameServers("c:3", clock).addresses == ("c:3",)
    assert NameServers(["c:3", "d:4"], clock).addresses == ("c:3", "d:4")
    monkeypatch.setenv(VARIABLE, "nonsense")
    with pytest.raises(InvalidConfig):
        NameServers(SERVERS, clock)


def test_an_address_server_is_asked_now_and_then_and_its_last_list_counts(address_server: AddressServer) -> None:
    clock = HandClock()
    names = NameServers(address_server.url, clock)
    assert (names.addresses, names.is_due) == ((), True)
    with pytest.raises(Unavailable, match="does not answer"):
        names.fetch()
    address_server.said = "no address"
    with pytest.raises(InvalidConfig):
        names.fetch()
    address_server.said = "a:1;b:2\n"
    names.fetch()
    assert (names.addresses, names.is_due) == (("a:1", "b:2"), False)
    clock.now += FRESH_S
    assert names.is_due
    address_server.said = ""
    names.fetch()
    assert (names.addresses, names.is_due) == (("a:1", "b:2"), False)
    clock.now += RETRY_S
    address_server.said = "c:3"
    names.fetch()
    assert names.addresses == ("c:3",)


def test_clients_of_both_kinds_find_the_cluster_by_it(
    run: Callable[..., Any], real_cluster: Any, address_server: AddressServer
) -> None:
    async def look() -> None:
        async with Admin(address_server.url) as admin:
            with pytest.raises(Unavailable):
                await admin.brokers()
            address_server.said = real_cluster.servers
            assert [one.broker for one in await admin.brokers()] == ["broker-a"]
            assert await admin.topics() == []

    run(look)
    assert address_server.asked == 2, "its list is kept"
    with blocking.Producer(servers=address_server.url) as producer:
        producer.send("orders", b"1")
