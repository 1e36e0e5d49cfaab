"""``penstock status`` against real servers, and against some that have troubles."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.root import root
from penstock.errors import InternalError
from penstock.protocol.link import OnResult
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, Route
from penstock.protocol.requests.servers import BrokerFigures, Ping, ReadFigures, ServerInfo
from penstock.version import VERSION

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]
NOWHERE = "127.0.0.1:1"
BROKER = ServerInfo("broker", "b", "0.0")


class Told:
    """A server that answers what it was told to, for every peer."""

    def __init__(self, answers: Mapping[type[Request], Any]) -> None:
        self.answers = answers

    def submit(self, request: Request, on_result: OnResult) -> None:
        on_result(self.answers[type(request)])

    def flush(self) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def told(serve: Any) -> Callable[..., str]:
    """Starts a server with answers; gives its address."""

    def start(*answers: tuple[type[Request], Any]) -> str:
        address: str = serve(lambda peer: Told(dict(answers))).address
        return address

    return start


def name_server(told: Callable[..., str], *brokers: tuple[str, str]) -> str:
    """One that knows brokers by names and addresses."""
    route = Route(tuple(BrokerRoute(name, address, 0) for name, address in brokers))
    return told((Ping, ServerInfo("namesrv", "", "0.0")), (QueryRoute, route))


def troubles(servers: str, status: int = 1) -> dict[str, list[str]]:
    """What is told of each address."""
    result = CliRunner().invoke(root, ["--server", servers, "status", "--json"])
    assert result.exit_code == status, result.output
    return {row["address"]: row["troubles"] for row in map(json.loads, result.stdout.splitlines())}


def test_servers_that_are_well(penstock: Penstock, rows: Rows, real_cluster: Any) -> None:
    assert penstock("produce", "orders", "x").exit_code == 0
    names, broker = rows("status")
    assert (names["server"], names["address"], names["topics"]) == ("name server", real_cluster.servers, None)
    assert (broker["server"], broker["topics"], broker["sessions"], broker["log_mib"]) == ("broker", 1, 0, 0)
    for row in (names, broker):
        assert (row["version"], row["troubles"], row["state"]) == (VERSION, [], "ok")
        assert row["answered_ms"] > 0
    [_, first, second] = penstock("status").stdout.splitlines()
    assert (first.split()[-1], second.split()[-1]) == ("ok", "ok")


def test_a_name_server_that_is_away_is_told_and_the_others_are_asked(real_cluster: Any) -> None:
    found = troubles(f"{NOWHERE},{real_cluster.servers}")
    assert found.pop(NOWHERE) == [f"no server at {NOWHERE}: connection refused"]
    assert len(found) == 2
    assert not any(found.values())


def test_nobody_at_all_is_no_success(penstock: Penstock) -> None:
    assert troubles(NOWHERE) == {NOWHERE: [f"no server at {NOWHERE}: connection refused"]}


def test_that_no_broker_is_registered(told: Callable[..., str]) -> None:
    names = name_server(told)
    assert troubles(names) == {names: ["no broker is registered"]}


def test_a_broker_that_is_away_and_one_that_a_name_server_does_not_know(told: Callable[..., str]) -> None:
    broker = told((Ping, BROKER), (ReadFigures, BrokerFigures((), ())))
    first, second = name_server(told, ("a", NOWHERE), ("b", broker)), name_server(told, ("a", NOWHERE))
    found = troubles(f"{first},{second}")
    assert found == {
        first: [],
        second: [],
        NOWHERE: [f"no server at {NOWHERE}: connection refused"],
        broker: [f"not registered at {second}"],
    }


def test_a_brokers_own_troubles(told: Callable[..., str]) -> None:
    figures = BrokerFigures(("penstock_disk_full", "penstock_damaged_frames_total"), (1.0, 2.0))
    full = told((Ping, BROKER), (ReadFigures, figures))
    ill = told((Ping, BROKER), (ReadFigures, InternalError("no figures today")))
    names = name_server(told, ("full", full), ("ill", ill))
    assert troubles(names) == {
        names: [],
        full: [
            "the disk is full; messages are refused until there is room",
            "damaged records passed over: 2 (`penstock store verify`)",
        ],
        ill: ["no figures today"],
    }


def test_gateways_are_shown_as_their_home_has_heard_them(told: Callable[..., str]) -> None:
    figures = {
        'penstock_gateway_silent_s{gateway="gw-2"}': 40.0,
        'penstock_gateway_sessions{gateway="gw-2"}': 0.0,
        'penstock_gateway_silent_s{gateway="gw-1"}': 2.0,
        'penstock_gateway_sessions{gateway="gw-1"}': 7.0,
    }
    broker = told((Ping, BROKER), (ReadFigures, BrokerFigures(tuple(figures), tuple(figures.values()))))
    names = name_server(told, ("b", broker))
    result = CliRunner().invoke(root, ["--server", names, "status", "--json"])
    assert result.exit_code == 0
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["name"], row["sessions"], row["state"]) for row in rows if row["server"] == "gateway"] == [
        ("gw-1", 7, "ok"),
        ("gw-2", 0, "not heard for 40 s"),
    ]


def test_who_is_something_else_is_told_so(told: Callable[..., str]) -> None:
    broker = told((Ping, BROKER))
    assert troubles(broker) == {broker: ["this is no name server but a broker"]}
