"""What load balancers say, and what pretends to be one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_ends import PLACES, outcome, pieces, proxy_header, single

from gateway.transports.proxy import BODY_BYTES_MAX, Header, ProxyCodec, parse_header

NOOP = b"\x04\x00\x02xx"


@pytest.mark.parametrize("client", ["203.0.113.7", "2001:db8::7"])
@pytest.mark.parametrize("tlvs", [b"", NOOP, NOOP * 3 + b"\x05\x00\x00"])
def test_the_clients_address_is_taken_and_the_rest_passes(client: str, tlvs: bytes) -> None:
    codec = ProxyCodec()
    assert codec.decode(proxy_header(client, tlvs=tlvs) + b"\x10\x0e") == b"\x10\x0e"
    assert codec.address == client
    assert codec.decode(b"more") == b"more"
    assert (codec.encode(b"out"), codec.output(), codec.close()) == (b"out", b"", b"")


HEADERS = st.builds(
    lambda command, family, size, tlvs: proxy_header(command=command, family=family, size=size, tlvs=tlvs),
    st.sampled_from([0x20, 0x21, 0x22]),
    st.sampled_from([0x00, 0x11, 0x12, 0x21, 0x31, 0x32]),
    st.sampled_from([-1, 0, 12, 17, 36, 216, BODY_BYTES_MAX, BODY_BYTES_MAX + 1]),
    st.sampled_from([b"", NOOP, b"\x04\xff\xff", bytes(300), NOOP.ljust(BODY_BYTES_MAX, b"\0")]),
)
TEXT = b"PROXY TCP4 203.0.113.7 10.0.0.1 40000 1883\r\n"  # version 1


@settings(max_examples=75)
@given(st.one_of(HEADERS, st.binary(max_size=40), st.just(TEXT)), st.binary(max_size=20), PLACES)
def test_any_cutting_of_any_stream_gives_the_same_bytes_address_and_end(
    head: bytes, behind: bytes, places: list[int]
) -> None:
    stream = head + behind
    whole = outcome(ProxyCodec(), [stream])
    assert outcome(ProxyCodec(), pieces(stream, places)) == whole
    assert outcome(ProxyCodec(), single(stream)) == whole


def test_a_balancer_that_speaks_for_itself_gives_no_address() -> None:
    codec = ProxyCodec()
    assert codec.decode(proxy_header(command=0x20) + b"x") == b"x"
    assert codec.address is None
    assert parse_header(proxy_header(command=0x20, family=0, size=0)[:16]) == Header(None, 16)


def test_a_header_without_an_address_leaves_the_sockets() -> None:
    assert parse_header(proxy_header(family=0, size=0)[:16]) == Header(None, 16)


@pytest.mark.parametrize("tlvs", [b"", NOOP])
def test_a_client_of_a_unix_socket_counts_as_the_balancers_own(tlvs: bytes) -> None:
    paths = b"/run/client.sock".ljust(108, b"\0") + b"/run/mqtt.sock".ljust(108, b"\0")
    header = proxy_header(family=0x31, size=len(paths + tlvs))[:16] + paths + tlvs
    assert parse_header(header) == Header(None, len(header))
    codec = ProxyCodec()
    assert codec.decode(header + b"\x10\x0e") == b"\x10\x0e"
    assert (codec.address, codec.over) == (None, "")


@pytest.mark.parametrize(
    "data",
    [
        TEXT,
        b"\x10\x0e\x00\x04MQTT",
        b"\x16\x03\x01",
        proxy_header(command=0x11),
        proxy_header(command=0x31),
        proxy_header(command=0x22),
        proxy_header(family=0x12),  # UDP
        proxy_header(family=0x22),  # UDP over IPv6
        proxy_header(family=0x32, size=216) + bytes(216),  # datagrams of a Unix socket
        proxy_header(family=0x31),  # a Unix socket, but the room of IPv4
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
