from __future__ import annotations

import pytest

from broker.messages.marking import marked
from broker.store.destinations import Incoming, incoming_of
from penstock.protocol.message import Message, decode_message, encode_message, record_properties
from tests.broker.store.store_rig import record_of


def incoming(message: Message) -> Incoming:
    return incoming_of(encode_message(message, queue_id=0))


@pytest.mark.parametrize("properties", [{}, {"a": "1"}, {"a": "1", "TIMER": "old", "z": "2"}])
def test_a_mark_is_a_flag_and_a_property_more_and_all_else_stays(properties: dict[str, str]) -> None:
    message = Message("t", b"body", key="k", properties=properties, id="i")
    found = marked(incoming(message), 0b100000, "TIMER", "new")
    record = record_of(found)
    decoded = decode_message(record)
    assert dict(decoded.properties) == properties | {"TIMER": "new"}
    assert (decoded.topic, decoded.body, decoded.key, decoded.id) == ("t", b"body", "k", "i")
    assert found.destination.properties == record_properties(record)
    assert found.run.flag == 0b100001 == int.from_bytes(record[16:20], "big")


def test_a_record_without_properties_gets_its_first() -> None:
    found = marked(incoming(Message("t", b"")), 0, "TIMER", "x")
    assert dict(decode_message(record_of(found)).properties) == {"TIMER": "x"}
