"""Codecs inside each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from wire_ends import Authority, TlsEnd, frame, proxy_header, request

from gateway.transports.codec import Stack
from gateway.transports.proxy import ProxyCodec
from gateway.transports.tls import TlsCodec
from gateway.transports.websocket import WebSocketCodec
from penstock.service.certificates import Certificates


@pytest.fixture
def end(tmp_path: Path) -> TlsEnd:
    """A client that speaks TLS with a server's side of all three, behind a load balancer."""
    authority = Authority(tmp_path)
    context = Certificates(authority.files("required"), "http/1.1").context
    stack = Stack([ProxyCodec(), TlsCodec(context), WebSocketCodec("/mqtt")])
    assert stack.decode(proxy_header()) == b""
    return TlsEnd(authority.client_context(authority.client("d-7.example")), stack)


def test_what_goes_in_at_one_end_comes_out_at_the_other(end: TlsEnd) -> None:
    end.shake_hands()
    assert end.send(request()) == b""
    assert end.receive(b"").startswith(b"HTTP/1.1 101 ")
    assert end.send(frame(b"packet")) == b"packet"
    assert end.receive(end.codec.encode(b"answer")) == b"\x82\x06answer"


def test_each_codec_knows_its_part_of_who_is_there(end: TlsEnd) -> None:
    end.shake_hands()
    assert (end.codec.address, end.codec.certificate) == ("203.0.113.7", "d-7.example")


def test_what_an_inner_codec_says_by_itself_goes_through_the_outer_ones(end: TlsEnd) -> None:
    end.shake_hands()
    end.send(request())
    end.receive(b"")
    end.send(frame(b"hello", 9))
    assert end.receive(b"") == b"\x8a\x05hello"


def test_a_farewell_is_every_codecs(end: TlsEnd) -> None:
    end.shake_hands()
    end.send(request())
    end.receive(b"")
    assert end.receive(end.codec.close()) == b"\x88\x02\x03\xe8"
    assert end.receive(b"") == b""  # TLS has said its own


def test_what_is_over_for_one_is_over_for_all(end: TlsEnd) -> None:
    end.shake_hands()
    assert not end.codec.over
    end.send(b"GET /elsewhere HTTP/1.1\r\nhost: x\r\n\r\n")
    assert end.codec.over.startswith("HTTP 404")
    assert end.receive(b"").startswith(b"HTTP/1.1 404 ")
    assert end.send(request()) == b""


def test_a_farewell_before_anything_was_said_is_none(tmp_path: Path) -> None:
    context = Certificates(Authority(tmp_path).files(), "mqtt").context
    assert Stack([ProxyCodec(), TlsCodec(context), WebSocketCodec("/mqtt")]).close() == b""
