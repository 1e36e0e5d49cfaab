"""What load balancers say, and what pretends to be one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_ends import proxy_header

from gateway.transports.proxy import Header, ProxyCodec, parse_header

NOOP = b"\x04\x00\x02xx"


@pytest.mark.parametrize("client", ["203.0.113.7", "2001:db8::7"])
@pytest.mark.parametrize("tlvs", [b"", NOOP, NOOP * 3 + b"\x05\x00\x00"])
def test_the_clients_address_is_taken_and_the_rest_passes(client: str, tlvs: bytes) -> None:
    codec = ProxyCodec()
    assert codec.decode(proxy_header(client, tlvs=tlvs) + b"\x10\x0e") == b"\x10\x0e"
    assert codec.address == client
    assert codec.decode(b"more") == b"more"
    assert (codec.encode(b"out"), codec.output(), codec.close()) == (b"out", b"", b"")


@given(st.integers(1, 30))
def test_a_header_may_come_in_any_pieces(cut: int) -> None:
    codec, data = ProxyCodec(), proxy_header(tlvs=NOOP) + b"behind"
    assert b"".join(codec.decode(data[at : at + cut]) for at in range(0, len(data), cut)) == b"behind"
    assert codec.address == "203.0.113.7"


def test_a_balancer_that_speaks_for_itself_gives_no_address() -> None:
    codec = ProxyCodec()
    assert codec.decode(proxy_header(command=0x20) + b"x") == b"x"
    assert codec.address is None
    assert parse_header(proxy_header(command=0x20, family=0, size=0)[:16]) == Header(None, 16)


def test_a_header_without_an_address_leaves_the_sockets() -> None:
    assert parse_header(proxy_header(family=0, size=0)[:16]) == Header(None, 16)


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY TCP4 203.0.113.7 10.0.0.1 40000 1883\r\n",  # version 1
        b"\x10\x0e\x00\x04MQTT",
        b"\x16\x03\x01",
        proxy_header(command=0x11),
        proxy_header(command=0x31),
        proxy_header(command=0x22),
        proxy_header(family=0x12),  # UDP
        proxy_header(family=0x31),  # a Unix socket
        proxy_header(family=0x21),  # IPv6, but the room of IPv4
        proxy_header(size=11),
        proxy_header(size=4097),
        proxy_header(size=65_535),
        proxy_header(tlvs=b"\x04"),
        proxy_header(tlvs=b"\x04\x00"),
        proxy_header(tlvs=b"\x04\x00\x03xx"),
        proxy_header(tlvs=NOOP + b"\x04\xff\xff"),
    ],
)
def test_anything_else_is_over_and_nothing_of_it_passes(data: bytes) -> None:
    codec = ProxyCodec()
    assert codec.decode(data + b"behind") == b""
    assert codec.over
    assert codec.decode(b"more") == b""
    assert codec.address is None


def test_a_wrong_beginning_is_refused_at_its_first_wrong_byte() -> None:
    codec = ProxyCodec()
    codec.decode(b"\r\n\r\n")
    assert not codec.over
    codec.decode(b"\x01")
    assert codec.over


@given(st.binary(max_size=80))
def test_any_bytes_give_a_header_a_wait_or_an_end(data: bytes) -> None:
    for codec in (ProxyCodec(), ProxyCodec()):
        codec.decode(proxy_header()[:14] + data)
        codec.decode(data)
