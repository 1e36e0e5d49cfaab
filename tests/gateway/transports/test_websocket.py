"""WebSocket from the server's side, byte by byte."""

from __future__ import annotations

import pytest
from circles import leaves_none_of
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_ends import PLACES, frame, outcome, pieces, request, single

from gateway.transports.websocket import REQUEST_BYTES_MAX, WebSocketCodec


def opened() -> WebSocketCodec:
    codec = WebSocketCodec("/mqtt")
    assert codec.decode(request()) == b""
    assert codec.output().startswith(b"HTTP/1.1 101 ")
    return codec


@pytest.mark.mqtt("6.0.0-4", old=("6.0.0-4",))
@pytest.mark.parametrize(
    ("offered", "chosen"),
    [("mqtt", "mqtt"), ("mqttv3.1", "mqttv3.1"), ("soap, mqtt", "mqtt"), ("mqttv3.1,mqtt", "mqtt")],
)
def test_the_subprotocol_that_is_offered_is_selected(offered: str, chosen: str) -> None:
    codec = WebSocketCodec("/mqtt")
    codec.decode(request(sec_websocket_protocol=offered))
    answer = codec.output().split(b"\r\n")
    assert answer[0] == b"HTTP/1.1 101 Switching Protocols"
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in answer  # RFC 6455, 1.3
    assert b"Sec-WebSocket-Protocol: " + chosen.encode() in answer


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (b"GET /mqtt HTTP/1.1\r\nhost: x\r\n\r\n", 426),
        (request("/"), 404),
        (request("/mqtt/"), 404),
        (request().replace(b"GET", b"POST"), 405),
        (request(upgrade="h2c"), 426),
        (request(connection="close"), 426),
        (request(sec_websocket_version="8"), 426),
        (request(sec_websocket_key=None), 400),
        (request(sec_websocket_key="short"), 400),
        (request(sec_websocket_protocol=None), 400),
        (request(sec_websocket_protocol="wamp"), 400),
        (request(content_length="5"), 400),
        (request(host=None), 400),
        (request().replace(b"HTTP/1.1", b"HTTP/1.0"), 400),
        (b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02c1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (request(x="y" * REQUEST_BYTES_MAX)[:-4], 431),
        (b"GET " + b"/" * (REQUEST_BYTES_MAX + 1), 431),
    ],
)
def test_a_request_that_opens_nothing_is_told_why(asked: bytes, status: int) -> None:
    codec = WebSocketCodec("/mqtt")
    assert codec.decode(asked) == b""
    said = codec.output()
    assert said.startswith(b"HTTP/1.1 %d " % status), said
    assert b"close\r\n\r\n" in said
    assert codec.over
    assert codec.decode(request()) == b""
    assert codec.close() == b""


def test_a_connection_that_speaks_no_http_is_gone_at_once() -> None:
    with leaves_none_of(WebSocketCodec):
        codec = WebSocketCodec("/mqtt")
        codec.decode(b"no http at all\r\n\r\n")
        assert codec.over
        del codec


def test_a_page_of_another_origin_is_refused_where_origins_are_named() -> None:
    for origin, status in (("https://evil.example", b"403"), ("https://own.example", b"101"), (None, b"101")):
        codec = WebSocketCodec("/mqtt", ["https://own.example"])
        codec.decode(request(origin=origin))
        assert codec.output().split()[1] == status


@pytest.mark.parametrize(
    ("origin", "is_own"),
    [
        (None, True),
        ("http://localhost:3000", True),
        ("https://127.0.0.1", True),
        ("http://[::1]:8080", True),
        ("https://evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://127.0.0.1.evil.example:8083", False),
        ("http://localhost@evil.example", False),
        ("http://[::1", False),
        ("http://10.0.0.1", False),
        ("null", False),
        ("file://", False),
    ],
)
def test_a_page_is_told_of_that_is_not_this_machines_own_and_that_nobody_has_named(
    origin: str | None, is_own: bool
) -> None:
    for named in ([], [origin or "https://other.example"]):
        codec = WebSocketCodec("/mqtt", named)
        codec.decode(request(origin=origin))
        assert b" 101 " in codec.output()
        assert codec.page == ("" if is_own or named else origin)


@pytest.mark.parametrize(
    ("target", "is_there"),
    [
        ("/mqtt?client=7", True),
        ("http://device.example/mqtt", True),
        ("HTTPS://device.example:8084/mqtt?client=/x", True),
        ("http://device.example/other", False),
        ("http://device.example?/mqtt", False),
        ("http://device.example", False),
        ("http:/mqtt", False),
        ("ftp://device.example/mqtt", False),
    ],
)
def test_the_target_may_have_a_query_and_be_a_whole_address(target: str, is_there: bool) -> None:
    codec = WebSocketCodec("/mqtt")
    codec.decode(request(target))
    assert (b" 101 " if is_there else b" 404 ") in codec.output()


def cookies(size: int) -> bytes:
    """A request of so many bytes."""
    return request(cookie="c" * (size - len(request(cookie=""))))


@pytest.mark.parametrize(
    ("size", "status"),
    [(8_500, b"101"), (REQUEST_BYTES_MAX, b"101"), (REQUEST_BYTES_MAX + 1, b"431"), (40_000, b"431")],
)
@pytest.mark.parametrize("last", [0, 1, 5, 8_000])
def test_the_limit_of_a_request_is_the_same_however_its_last_bytes_come(size: int, status: bytes, last: int) -> None:
    asked = cookies(size)
    assert len(asked) == size
    stream = asked + frame(b"at once")
    codec = WebSocketCodec("/mqtt")
    decoded, said, over, _ = outcome(codec, pieces(stream, [len(asked) - last]))
    assert said.split()[1] == status
    assert (decoded, bool(over)) == ((b"", True) if status == b"431" else (b"at once", False))


REQUESTS = st.one_of(
    st.just(request()),
    st.sampled_from([8_190, 8_500, REQUEST_BYTES_MAX - 1, REQUEST_BYTES_MAX, REQUEST_BYTES_MAX + 1, 33_000]).map(
        cookies
    ),
    st.sampled_from(
        [
            b"\r\n" + request(),
            b"\n",
            b" " + request(),
            request().replace(b"\r\n", b"\n"),
            request(host=None),
            request(upgrade=None),
            request("/other"),
            request(content_length="5") + b"hello",
            request(expect="100-continue"),
            request().replace(b"HTTP/1.1", b"HTTP/9"),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01" + bytes(REQUEST_BYTES_MAX),
            b"GET " + b"/" * (REQUEST_BYTES_MAX + 1),
        ]
    ),
    st.binary(max_size=60),
)
FRAMES = st.builds(
    lambda payload, opcode, final, masked, length: frame(payload, opcode, final=final, masked=masked, length=length),
    st.sampled_from([b"", b"ab", b"\x03\xe8bye", b"\x03", bytes(125), bytes(126), bytes(70_000)]),
    st.sampled_from([0, 1, 2, 2, 2, 8, 9, 10, 3]),
    st.booleans(),
    st.sampled_from([True, True, True, False]),
    st.sampled_from([-1, -1, -1, 3, 1 << 40]),
)


@pytest.mark.mqtt("6.0.0-2", old=("6.0.0-2",))
def test_a_packet_may_be_in_several_frames_and_a_frame_hold_several_packets() -> None:
    stream = request() + frame(b"ab") + frame(b"cd", final=False) + frame(b"?", 9) + frame(b"ef", 0) + frame(b"g" * 300)
    decoded, said, over, _ = outcome(WebSocketCodec("/mqtt"), single(stream))
    assert (decoded, over) == (b"abcdef" + b"g" * 300, "")
    assert said.endswith(b"\x8a\x01?")


@settings(max_examples=75)
@given(REQUESTS, st.lists(FRAMES, max_size=4), st.binary(max_size=12), PLACES)
def test_any_cutting_of_any_stream_gives_the_same_bytes_answers_and_end(
    asked: bytes, frames: list[bytes], more: bytes, places: list[int]
) -> None:
    stream = b"".join([asked, *frames, more])
    whole = outcome(WebSocketCodec("/mqtt"), [stream] if stream else [])
    assert outcome(WebSocketCodec("/mqtt"), pieces(stream, places)) == whole
    head, rest = stream[:500], stream[500:]
    assert outcome(WebSocketCodec("/mqtt"), [*single(head), *pieces(rest, places)]) == whole


def test_frames_right_behind_the_request_are_taken() -> None:
    assert WebSocketCodec("/mqtt").decode(request() + frame(b"at once")) == b"at once"


def test_what_is_sent_is_one_binary_frame() -> None:
    codec = opened()
    assert codec.encode(b"packets") == b"\x82\x07packets"
    assert codec.encode(bytes(70_000))[:10] == b"\x82\x7f" + (70_000).to_bytes(8, "big")


def close_code(codec: WebSocketCodec) -> int:
    said = codec.output()
    assert said[0] == 0x88
    return int.from_bytes(said[2:4], "big")


@pytest.mark.mqtt("6.0.0-1", old=("6.0.0-1",))
@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("text", [b"text", b"", b"\xff\xfe", b"caf\xc3"])
def test_a_text_frame_closes_with_1003_after_what_came_before_it(text: bytes, final: bool) -> None:
    codec = opened()
    assert codec.decode(frame(b"good") + frame(text, 1, final=final) + frame(b"late")) == b"good"
    assert codec.over == "binary frames only"
    assert codec.output() == b"\x88\x14\x03\xebbinary frames only"
    assert codec.decode(frame(b"later")) == b""


def test_a_text_frame_closes_as_soon_as_its_header_is_there() -> None:
    codec = opened()
    codec.decode(frame(b"text", 1)[:6])
    assert close_code(codec) == 1003


def test_a_close_that_says_1003_itself_is_answered_in_its_own_words() -> None:
    codec = opened()
    codec.decode(frame(b"\x03\xebno text", 8))
    assert codec.output() == b"\x88\x09\x03\xebno text"


@pytest.mark.parametrize(
    ("hostile", "code"),
    [
        (frame(b"x", masked=False), 1002),
        (frame(b"x", 3), 1002),  # an opcode that is reserved
        (b"\xc2" + frame(b"x")[1:], 1002),  # a reserved bit
        (frame(b"x", 0), 1002),  # a continuation of nothing
        (frame(b"x", final=False) + frame(b"y"), 1002),
        (frame(b"x", 9, final=False), 1002),  # a control frame in pieces
        (frame(bytes(126), 9), 1002),  # and one too long
        (b"\x82\xfe\x00\x05\x00\x00\x00\x00hello", 1002),  # a length that should be shorter
        (frame(b"\x03", 8), 1002),  # half a status
        (frame(b"\x03\xe8\xff\xfe", 8), 1007),  # a reason that is no UTF-8
        (frame(b"x", final=False) + frame(b"\xff", 1), 1003),  # a text frame, wherever it is
    ],
)
def test_frames_that_break_the_rules_end_the_connection(hostile: bytes, code: int) -> None:
    codec = opened()
    codec.decode(hostile)
    assert codec.over
    assert close_code(codec) == code


def test_a_huge_frame_is_not_kept_but_passed_on_as_it_comes() -> None:
    codec = opened()
    got = codec.decode(frame(b"x" * 1000, length=1 << 40))
    assert got == b"x" * 1000
    assert codec.decode(b"\x00" * 1000) != b""


def test_a_close_is_answered_in_kind() -> None:
    codec = opened()
    codec.decode(frame(b"\x03\xe8bye", 8))
    assert codec.over
    assert codec.output() == b"\x88\x05\x03\xe8bye"
    assert codec.encode(b"too late") == b""
    assert codec.close() == b""


def test_a_close_without_a_status_is_answered_too() -> None:
    codec = opened()
    codec.decode(frame(b"", 8))
    assert codec.over
    assert codec.output() == b"\x88\x00"


def test_a_pong_is_no_news() -> None:
    codec = opened()
    assert codec.decode(frame(b"x", 10) + frame(b"y")) == b"y"
    assert codec.output() == b""


def test_the_servers_farewell_is_a_close_frame() -> None:
    codec = opened()
    assert codec.close() == b"\x88\x02\x03\xe8"
    assert codec.encode(b"late") == b""


@given(st.binary(max_size=300))
def test_any_bytes_give_no_error_but_an_end(data: bytes) -> None:
    WebSocketCodec("/mqtt").decode(data)
    codec = opened()
    codec.decode(data)
    codec.decode(data)
    codec.output()
    codec.close()
