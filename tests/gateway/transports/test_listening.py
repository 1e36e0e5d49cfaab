"""Listeners as an operator writes them."""

from __future__ import annotations

import ipaddress

import pytest

from gateway.transports.listening import Listening, anonymous_at, is_among, parse_listener, parse_listeners
from penstock.errors import InvalidConfig
from penstock.service.certificates import Files


@pytest.mark.parametrize(
    ("line", "listening"),
    [
        ("tcp 0.0.0.0:1884 name=inside", Listening("inside", "tcp", "0.0.0.0", 1884)),
        ("ws [::]:8083", Listening("ws", "ws", "::", 8083)),
        ("ws h:1 path=/iot connections_max=5", Listening("ws", "ws", "h", 1, path="/iot", connections_max=5)),
        ("tcp h:1 name=old over_receive_max=take", Listening("old", "tcp", "h", 1, is_lenient=True)),
        ("tcp h:1 name=new over_receive_max=close", Listening("new", "tcp", "h", 1)),
        ("tcp h:1 name=open anonymous=everyone", Listening("open", "tcp", "h", 1, anonymous="everyone")),
        ("tcp h:1 name=a mount=plants/a", Listening("a", "tcp", "h", 1, mount="plants/a/")),
        ("tcp h:1 name=a mount=plants/a/", Listening("a", "tcp", "h", 1, mount="plants/a/")),
        ("tls h:8883 certificate=s.pem", Listening("tls", "tls", "h", 8883, Files("s.pem"))),
        (
            "tls h:0 certificate=s.pem key=s.key client_ca=ca.pem",
            Listening("tls", "tls", "h", 0, Files("s.pem", "s.key", "ca.pem", "required")),
        ),
        (
            "tls h:0 certificate=s.pem client_ca=ca.pem client_crl=crl.pem",
            Listening("tls", "tls", "h", 0, Files("s.pem", "", "ca.pem", "required", "crl.pem")),
        ),
        (
            "wss h:1 certificate=s client_ca=c clients=optional origin=https://a origin=https://b",
            Listening("wss", "wss", "h", 1, Files("s", "", "c", "optional"), origins=("https://a", "https://b")),
        ),
        (
            "tcp h:1 name=lb proxy=10.0.0.0/8 proxy=fd00::/8",
            Listening(
                "lb", "tcp", "h", 1, proxies=(ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8"))
            ),
        ),
    ],
)
def test_a_line_is_a_listener(line: str, listening: Listening) -> None:
    assert parse_listener(line) == listening


@pytest.mark.parametrize(
    "line",
    [
        "",
        "tls",
        "udp h:1",
        "tcp h",
        "tcp h:x",
        "tcp h:65536",
        "tcp :1",
        "tcp ::1:1",
        "tcp h:1 anonymous=all",
        "tcp h:1 mount=/",
        "tcp h:1 mount=/a",
        "tcp h:1 mount=a/#",
        "tcp h:1 mount=a/+/b",
        "tcp h:1 mount=$SYS/a",
        "tcp h:1 mount=" + "x" * 1025,
        "tcp h:1 anonymous=nobody anonymous=everyone",
        "tcp h:1 certificate=x",
        "ws h:1 certificate=x",
        "tls h:1",
        "tls h:1 certificate=",
        "tcp h:1 over_receive_max=warn",
        "tls h:1 certificate=a certificate=b",
        "tls h:1 certificate=x clients=required",
        "tls h:1 certificate=x client_crl=l",
        "ws h:1 client_crl=l",
        "tls h:1 certificate=x client_ca=c clients=none",
        "tls h:1 certificate=x client_ca=c clients=some",
        "tls h:1 certificate=x path=/x",
        "ws h:1 path=x",
        "ws h:1 name=A",
        "ws h:1 connections_max=many",
        "tcp h:1 proxy=everybody",
        "tcp h:1 proxy=10.0.0.1/8",
        "ws h:1,2",
        "wss h:1 certificate=c origin=https://a,https://b",
        "ws h:1 path=/x,/y",
        "ws h:1 path",
    ],
)
def test_anything_else_is_one_clear_error(line: str) -> None:
    with pytest.raises(InvalidConfig, match="listener"):
        parse_listener(line)


@pytest.mark.parametrize("lines", [["ws h:1", "ws h:2"], ["tcp h:1"]])
def test_no_two_listeners_have_one_name(lines: list[str]) -> None:
    with pytest.raises(InvalidConfig, match="two listeners"):
        parse_listeners(lines)


@pytest.mark.parametrize(
    ("address", "is_one"),
    [("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("11.0.0.1", False), ("fd00::1%eth0", True), ("x", False)],
)
def test_an_address_is_of_a_network_or_not(address: str, is_one: bool) -> None:
    assert is_among(address, [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8")]) == is_one


def test_listeners_with_a_rule_of_their_own_for_anonymous_clients_are_found_by_name() -> None:
    lines = ["tcp h:1 name=a anonymous=nobody", "tcp h:2 name=b", "ws h:3 anonymous=everyone"]
    assert anonymous_at(lines) == {"a": "nobody", "ws": "everyone"}
