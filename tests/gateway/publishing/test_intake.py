"""The straight way for plain packets gives what the codec's way gives."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from making import made
from rig import Client, Gateway

from gateway.messages.outgoing import PACKET_ID_MAX
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Disconnect, Packet, Pingreq, Puback, Publish
from gateway.mqtt.properties import NO_PROPERTIES, Properties
from gateway.publishing.intake import is_partial_publish, plain_pubacks

USER = Properties(user_properties=(("k", "v"),))
PUBLISH = st.builds(
    lambda topic, payload, qos, retain, dup, properties, packet_id: Publish(
        topic, payload, qos, retain, dup and qos > 0, packet_id if qos else 0, properties
    ),
    st.sampled_from(["a", "a/b", "c"]),
    st.binary(max_size=20) | st.integers(100, 17_000).map(bytes),
    st.sampled_from([0, 1, 1, 1, 2]),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([NO_PROPERTIES, NO_PROPERTIES, USER]),
    st.integers(1, 65_535),
)
PACKET = PUBLISH | st.just(Pingreq())
# A device that repeats itself: packets of one name and size, which are taken as one run.
BURST = st.builds(
    lambda packet, count, odd: [
        replace(packet, payload=bytes([at]) * (4 + (at in odd)), properties=NO_PROPERTIES) for at in range(count)
    ],
    PUBLISH,
    st.integers(1, 90),
    st.frozensets(st.integers(0, 90), max_size=3),
)
PACKETS = st.lists(BURST | PACKET.map(lambda packet: [packet]), max_size=6).map(
    lambda some: [packet for one in some for packet in one]
)


def stored_and_answers(client: Client) -> tuple[list[tuple[str, int, bytes]], list[Packet]]:
    stored = client.gateway.broker.messages()
    return [(one.name, one.qos, one.body) for one in stored], client.got()


def stripped(packet: Packet, level: int) -> Packet:
    if isinstance(packet, Publish) and level < 5:
        return Publish(packet.topic, packet.payload, packet.qos, packet.retain, packet.dup, packet.packet_id)
    return packet


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(PACKET, max_size=12) | PACKETS,
    st.sampled_from([4, 5]),
    st.sampled_from([1024, 1 << 14, 1 << 20]),
    st.data(),
)
def test_any_pieces_of_any_packets_give_the_same_both_ways(
    packets: list[Packet], level: int, bytes_max: int, data: st.DataObject
) -> None:
    for at, packet in enumerate(packets):
        if isinstance(packet, Publish) and packet.qos:
            packets[at] = replace(packet, packet_id=at + 1)
    stream = b"".join(encode(stripped(packet, level), level) for packet in packets)
    outcomes = []
    for is_straight in (True, False):
        client = Gateway(packet_bytes_max=bytes_max).connect(level=level)
        for topic in ("a", "a/b", "c"):
            client.publish(topic)
        at = 0
        while at < len(stream):
            if not is_straight:
                client.device._routes = None
            size = data.draw(st.integers(1, len(stream))) if is_straight else len(stream)
            client.send_bytes(stream[at : at + size])
            at += size
        assert client.is_closed is any(len(encode(stripped(one, level), level)) > bytes_max for one in packets)
        outcomes.append(stored_and_answers(client))
    # The pieces fall differently, so answers of one kind may overtake those of another; none is lost or doubled, where
    # the connection does not end before they are known.
    assert outcomes[0][0] == outcomes[1][0]
    if not client.is_closed:
        assert sorted(map(repr, outcomes[0][1])) == sorted(map(repr, outcomes[1][1]))


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=6) | st.sampled_from([b"\x32\x05\x00\x01a\x00\x01", b"\x30\x03\x00\x01a"])))
def test_hostile_bytes_end_as_they_do_in_the_codec(parts: list[bytes]) -> None:
    outcomes = []
    for is_straight in (True, False):
        client = Gateway().connect()
        client.publish("a")
        if not is_straight:
            client.device._routes = None
        stream = b"".join(parts)
        if stream:
            client.send_bytes(stream)
        outcomes.append((len(client.gateway.broker.messages()), client.is_closed, client.got()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("size", [100, 126, 127, 128, 129, 16_383 - 5])
def test_every_length_of_a_plain_publish_goes_the_straight_way(size: int) -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.publish("a")
    client.publish("a", bytes(size), 1, packet_id=1)
    assert gateway.broker.bodies()[1:] == [bytes(size)]
    assert client.got() == [Puback(1)]


@pytest.mark.parametrize(
    ("rest", "is_one"),
    [
        (b"\x32", True),
        (b"\x32\x80", True),
        (b"\x32\x05\x00\x01a\x00", True),
        (b"\x32\x05\x00\x01a\x00\x01", False),
        (b"\x32\x85\x01\x00", True),
        (b"\x32\x80\x00\x00", False),
        (b"\x32\x80\x80\x01", False),
        (b"\x34\x05", False),
        (b"\x30" + b"\x7f" * 4096, False),
        (b"\x32\xfd\x07", True),
        (b"\x32\xfe\x07", False),
    ],
)
def test_only_the_beginning_of_a_plain_publish_is_kept_back(rest: bytes, is_one: bool) -> None:
    assert is_partial_publish(rest, 1024) is is_one


@pytest.mark.mqtt("3.2.2-15")
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("size", [1024, 1025, 8000])
def test_a_packet_over_the_limit_ends_the_connection_also_where_its_name_is_known(qos: int, size: int) -> None:
    gateway = Gateway(packet_bytes_max=1024)
    client = gateway.connect(level=5)
    client.publish("a")
    packet = Publish("a", b"", qos, packet_id=qos)
    packet = replace(packet, payload=bytes(size - len(encode(packet, 5)) - 1))
    stream = encode(packet, 5)
    assert len(stream) == size
    for at in range(0, size, 700):
        client.send_bytes(stream[at : at + 700])
    assert client.is_closed is (size > 1024)
    assert len(gateway.broker.bodies()) == (1 if size > 1024 else 2)
    if size > 1024:
        assert client.got_one(Disconnect).reason_code == 0x95


@pytest.mark.parametrize("ids", [[1], [1, 2], [2, 1], [3, 5], [PACKET_ID_MAX], [PACKET_ID_MAX, 1]])
def test_a_chunk_of_pubacks_is_read_at_once(ids: list[int]) -> None:
    assert list(plain_pubacks(b"".join([struct.pack(">HH", 0x4002, one) for one in ids])) or ()) == ids


@pytest.mark.parametrize(
    "chunk", ["40020001d000d000", "4003000110", "400200014002", "4002000150020002", "4002000140020000"]
)
def test_a_chunk_that_is_anything_else_is_left_to_the_codec(chunk: str) -> None:
    assert plain_pubacks(bytes.fromhex(chunk)) is None


def test_pubacks_of_either_way_end_their_exchanges() -> None:
    client = Gateway().connect(level=5)
    session = client.device.session
    assert session is not None
    for _ in range(4):
        session.send(made())
    client.send(Puback(2), Puback(1))
    assert list(session.in_flight) == [3, 4]
    client.send(Puback(3, 0x10), Puback(4))
    assert list(session.in_flight) == []
