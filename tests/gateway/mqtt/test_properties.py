from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.mqtt.primitives import FieldReader
from gateway.mqtt.properties import (
    NO_PROPERTIES,
    PUBLISH,
    TABLE,
    WILL,
    Properties,
    application_properties,
    encode_properties,
    property_block,
    read_properties,
)
from gateway.mqtt.reason_codes import PacketError
from tests.gateway.mqtt.packet_strategies import properties


def test_the_table_has_one_row_per_field_in_the_order_of_identifiers() -> None:
    assert {row.name for row in TABLE} == {field.name for field in dataclasses.fields(Properties)}
    assert [row.identifier for row in TABLE] == sorted({row.identifier for row in TABLE})


@pytest.mark.parametrize("packet", [0, 1, 2, 3, 4, 8, 10, 14, 15])
@settings(max_examples=40)
@given(data=st.data())
def test_a_block_is_read_as_it_was_written(packet: int, data: st.DataObject) -> None:
    value = data.draw(properties(packet, 5))
    cursor = FieldReader(property_block(encode_properties(value)) + b"rest")
    assert read_properties(cursor, packet) == value
    assert cursor.rest() == b"rest"


@given(st.binary(max_size=40), st.sampled_from([0, 1, 2, 3, 8, 14, 15]))
def test_any_bytes_give_properties_or_a_packet_error(data: bytes, packet: int) -> None:
    try:
        value = read_properties(FieldReader(data), packet)
    except PacketError:
        return
    assert read_properties(FieldReader(property_block(encode_properties(value))), packet) == value


@given(properties(PUBLISH, 5))
def test_forwarding_keeps_what_is_the_applications_and_drops_the_rest(value: Properties) -> None:
    forwarded = application_properties(encode_properties(value))
    kept = dataclasses.replace(value, message_expiry_interval=None, topic_alias=None, subscription_identifiers=())
    assert forwarded.expiry_s == value.message_expiry_interval
    assert forwarded.encoded == encode_properties(kept)


def test_forwarding_drops_the_delay_of_a_will() -> None:
    raw = encode_properties(Properties(will_delay_interval=5, content_type="t"))
    assert read_properties(FieldReader(property_block(raw)), WILL).will_delay_interval == 5
    assert application_properties(raw).encoded == encode_properties(Properties(content_type="t"))


def test_an_empty_block_is_the_one_empty_value() -> None:
    assert read_properties(FieldReader(b"\x00"), PUBLISH) is NO_PROPERTIES
    assert property_block(encode_properties(Properties())) == b"\x00"
