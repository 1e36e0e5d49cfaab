from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt.connect_codec import decode_connect, encode_connect
from gateway.mqtt.packets import Connect
from gateway.mqtt.primitives import FieldReader
from gateway.mqtt.reason_codes import PacketError
from tests.gateway.mqtt.packet_strategies import connects


@pytest.mark.parametrize("level", [3, 4, 5])
@given(data=st.data())
def test_a_connect_is_read_as_it_was_written(level: int, data: st.DataObject) -> None:
    value = data.draw(connects(level))
    cursor = FieldReader(encode_connect(value, level))
    assert decode_connect(cursor) == value
    cursor.finish()


@pytest.mark.parametrize("level", [4, 5])
@given(flags=st.integers(0, 255), rest=st.binary(max_size=30))
def test_any_flags_and_fields_give_a_connect_or_a_packet_error(level: int, flags: int, rest: bytes) -> None:
    try:
        value = decode_connect(FieldReader(b"\x00\x04MQTT" + bytes((level, flags)) + rest))
    except PacketError:
        return
    assert decode_connect(FieldReader(encode_connect(value, level))) == value


def test_a_connect_is_written_for_the_level_asked_for() -> None:
    value = Connect("c")
    assert encode_connect(value, 3)[:9] == b"\x00\x06MQIsdp\x03"
    assert encode_connect(value, 5)[:7] == b"\x00\x04MQTT\x05"
