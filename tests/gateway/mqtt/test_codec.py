from __future__ import annotations

import asyncio
from typing import Any

import pytest
from amqtt.adapters import BufferReader
from amqtt.mqtt import packet_class
from amqtt.mqtt.packet import MQTTFixedHeader
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.mqtt import codec
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from gateway.mqtt.primitives import FieldReader
from gateway.mqtt.properties import property_block
from gateway.mqtt.reason_codes import PacketError
from tests.gateway.mqtt.packet_strategies import after_connect, connects, publishes


def decoded(data: bytes, level: int) -> Packet:
    cursor = FieldReader(data, 1)
    assert cursor.variable_integer() == len(data) - cursor.at
    return codec.decode(data[0], cursor.rest(), level)


@pytest.mark.parametrize("level", [3, 4, 5])
@settings(max_examples=50)
@given(data=st.data())
def test_a_packet_is_read_as_it_was_written(level: int, data: st.DataObject) -> None:
    value = data.draw(after_connect(level))
    encoded = codec.encode(value, level)
    again = decoded(encoded, level)
    assert again == value
    assert codec.encode(again, level) == encoded


@pytest.mark.parametrize("level", [4, 5])
def test_of_too_many_filters_one_more_than_are_taken_is_looked_at(level: int) -> None:
    names = [f"a/{at}" for at in range(9)]
    damage = b"\xff\xff"
    for packet in (Subscribe(1, tuple([Subscription(name) for name in names])), Unsubscribe(1, tuple(names))):
        encoded = codec.encode(packet, level)
        first, body = encoded[0], encoded[2:]
        assert codec.decode(first, body, level, 9) == packet
        for cut in (codec.decode(first, body + damage, level, 3), codec.decode(first, body, level, 3)):
            kept = packet.subscriptions[:4] if isinstance(packet, Subscribe) else packet.filters[:4]
            assert cut == type(packet)(1, kept)
        with pytest.raises(PacketError):
            codec.decode(first, body + damage, level, 9)


@settings(max_examples=125)
@given(st.integers(0, 255), st.binary(max_size=40), st.sampled_from([3, 4, 5]))
def test_any_bytes_give_a_packet_or_a_packet_error(first: int, body: bytes, level: int) -> None:
    try:
        value = codec.decode(first, body, level)
    except PacketError:
        return
    of_level = value.level if isinstance(value, Connect) else level
    assert decoded(codec.encode(value, of_level), of_level) == value


@pytest.mark.parametrize("level", [4, 5])
@given(data=st.data())
def test_one_head_and_one_tail_serve_every_packet_id(level: int, data: st.DataObject) -> None:
    value = data.draw(publishes(level).filter(lambda one: one.qos > 0))
    tail = (property_block(codec.encode_properties(value.properties)) if level == 5 else b"") + value.payload
    head = codec.publish_head(value.topic.encode(), len(tail), value.qos, value.retain, value.dup)
    for packet_id in (1, 0x1234, 65_535):
        shared = head + packet_id.to_bytes(2, "big") + tail
        again = decoded(shared, level)
        assert isinstance(again, Publish)
        assert (again.packet_id, again.topic, again.payload) == (packet_id, value.topic, value.payload)
        assert (again.qos, again.retain, again.dup) == (value.qos, value.retain, value.dup)


@given(publishes(5))
def test_the_property_block_is_kept_as_it_was_received(value: Publish) -> None:
    again = decoded(codec.encode(value, 5), 5)
    assert isinstance(again, Publish)
    assert again.properties_raw == codec.encode_properties(value.properties)


# ---------------------------------------------------------------- against amqtt's codec


def run(coroutine: Any) -> Any:
    """Its memory reader never suspends, so a coroutine over it needs no event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("amqtt waited for something")


def read_by_amqtt(data: bytes) -> Any:
    reader = BufferReader(data)
    header = run(MQTTFixedHeader.from_stream(reader))
    return run(packet_class(header).from_stream(reader, fixed_header=header))


def from_amqtt(theirs: Any) -> Packet:
    """What amqtt's packet says, as ours."""
    kind, head, payload = type(theirs).__name__, theirs.variable_header, theirs.payload
    if kind == "ConnectPacket":
        will = None
        if theirs.will_flag:
            will = Will(theirs.will_topic, bytes(theirs.will_message), theirs.will_qos, bool(theirs.will_retain_flag))
        password = None if theirs.password is None else theirs.password.encode()
        return Connect(
            theirs.client_id, bool(theirs.clean_session_flag), theirs.keep_alive, theirs.username, password, will
        )
    if kind == "ConnackPacket":
        return Connack(bool(theirs.session_parent), theirs.return_code)
    if kind == "PublishPacket":
        return Publish(
            theirs.topic_name,
            bytes(theirs.data),
            theirs.qos,
            bool(theirs.retain_flag),
            bool(theirs.dup_flag),
            theirs.packet_id or 0,
        )
    if kind == "SubscribePacket":
        return Subscribe(head.packet_id, tuple(Subscription(name, qos) for name, qos in payload.topics))
    if kind == "SubackPacket":
        return Suback(head.packet_id, tuple(payload.return_codes))
    if kind == "UnsubscribePacket":
        return Unsubscribe(head.packet_id, tuple(payload.topics))
    plain = {"PingReqPacket": Pingreq, "PingRespPacket": Pingresp, "DisconnectPacket": Disconnect}
    if kind in plain:
        return plain[kind]()
    answers = {"PubackPacket": Puback, "PubrecPacket": Pubrec, "PubrelPacket": Pubrel, "PubcompPacket": Pubcomp}
    return (answers | {"UnsubackPacket": Unsuback})[kind](head.packet_id)


@settings(max_examples=100)
@given(after_connect(4))
def test_amqtt_reads_what_we_write_and_writes_what_we_read(value: Packet) -> None:
    encoded = codec.encode(value, 4)
    theirs = read_by_amqtt(encoded)
    assert from_amqtt(theirs) == value
    assert decoded(bytes(theirs.to_bytes()), 4) == value


@settings(max_examples=50)
@given(connects(4))
def test_amqtt_and_we_agree_on_every_connect_with_a_client_id_and_text_passwords(value: Connect) -> None:
    if not value.client_id:
        return  # amqtt makes one up
    try:
        (value.password or b"").decode()
    except UnicodeDecodeError:
        return  # amqtt takes text only
    encoded = codec.encode(value, 4)
    theirs = read_by_amqtt(encoded)
    assert from_amqtt(theirs) == value
    assert decoded(bytes(theirs.to_bytes()), 4) == value


def test_amqtt_needs_no_running_loop_here() -> None:
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
