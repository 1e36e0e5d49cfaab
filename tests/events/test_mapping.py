from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.cloudevents import Event, to_properties
from events.mapping import Reading, Source, from_mqtt, mqtt_properties
from events.problems import Problem
from penstock.protocol.message import Message, decode_message, encode_message
from penstock.protocol.received import MessageQueue, ReceivedMessage

USUAL = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def received(message: Message, topic: str = "") -> ReceivedMessage:
    return decode_message(encode_message(message), MessageQueue("b", topic or message.topic, 2))


def string(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


def packed(content_type: str, *user: tuple[str, str]) -> str:
    pairs = [b"\x26" + string(name) + string(value) for name, value in user]
    return ":" + b64encode(b"\x01\x01\x03" + string(content_type) + b"".join(pairs)).decode()


def test_a_stored_event_is_what_it_was_also_in_the_topic_of_a_source() -> None:
    event = Event(USUAL | {"datacontenttype": "text/plain"}, b"x")
    message = received(Message("plant", b"x", properties=to_properties(event)))
    assert Reading([Source({"topic": "plant"})]).event_of(message) == event


def test_a_source_makes_events_of_client_name_and_payload() -> None:
    spec = {"topic": "plant", "type": "reading.${unit}", "variables": {"unit": "$.data.unit"}}
    message = received(Message("plant", b'{"unit": "c"}', "d7", mqtt_topic="plant/d7/t"))
    event = Reading([Source(spec)]).event_of(message)
    assert event is not None
    wanted = {"source": "/devices/d7", "type": "reading.c", "subject": "plant/d7/t", "time": "1970-01-01T00:00:00.000Z"}
    assert event.attributes == wanted | {
        "specversion": "1.0",
        "id": "b/plant:2/0",
        "datacontenttype": "application/json",
    }
    assert event.value == {"unit": "c"}


def test_a_message_without_source_or_without_a_type_is_no_event() -> None:
    message = received(Message("plant", b"{}"))
    assert Reading([]).event_of(message) is None
    assert (
        Reading([Source({"topic": "plant", "type": "${x}", "variables": {"x": "$.data.x"}})]).event_of(message) is None
    )


def test_the_id_of_a_retry_is_the_place_where_the_message_was_first() -> None:
    properties = {"ORIGIN_TOPIC": "plant", "ORIGIN_QUEUE": "plant:1", "ORIGIN_OFFSET": "9"}
    message = received(Message("plant", b"1", properties=properties))
    event = Reading([Source({"topic": "plant"})]).event_of(message)
    assert event is not None
    assert event.attributes["id"] == "b/plant:1/9"


def test_mqtt_5_binds_events_in_both_modes() -> None:
    content_type, user = mqtt_properties(packed("text/plain", *USUAL.items(), ("datacontenttype", "x/y")))
    assert from_mqtt(content_type, user, b"x") == Event(USUAL | {"datacontenttype": "text/plain"}, b"x")
    structured = b'{"specversion":"1.0","id":"1","source":"/s","type":"t"}'
    assert from_mqtt("application/cloudevents+json; charset=utf-8", [], structured) == Event(USUAL)
    assert from_mqtt("application/cloudevents+json", [], b"{") is None
    assert from_mqtt("text/plain", [("id", "1")], b"x") is None


@given(st.text() | st.binary().map(lambda raw: ":" + b64encode(raw).decode()))
def test_any_bytes_are_properties_or_none(text: str) -> None:
    content_type, user = mqtt_properties(text)
    assert isinstance(content_type, str)
    assert all(len(pair) == 2 for pair in user)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"topic": "a/b"},
        {"topic": 1},
        {"topic": "t", "x": 1},
        {"topic": "t", "type": "${y}"},
        {"topic": "t", "content_type": 1},
    ],
)
def test_a_source_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(Problem):
        Source(wrong)


def test_a_dead_letter_is_the_event_that_its_message_was() -> None:
    sources = Reading([Source({"topic": "plant"})])
    kept = {"ORIGIN_TOPIC": "plant", "ORIGIN_NAME": "plant/d7", "ORIGIN_QUEUE": "plant:1", "ORIGIN_OFFSET": "5"}
    letter = decode_message(
        encode_message(Message("%DLQ%g", b"21", "d7", properties=kept)), MessageQueue("b", "%DLQ%g", 0)
    )
    event = sources.event_of(letter, "plant")
    assert event is not None
    assert (event.attributes["id"], event.attributes["subject"]) == ("b/plant:1/5", "plant/d7")
    assert sources.event_of(letter) is None


def test_a_content_type_that_is_none_does_not_keep_a_message_from_its_source() -> None:
    message = received(Message("plant", b"21", "d7", properties={"MQTT_PROPERTIES": packed("none at all")}))
    event = Reading([Source({"topic": "plant"})]).event_of(message)
    assert event is not None
    assert event.attributes["datacontenttype"] == "application/json"
