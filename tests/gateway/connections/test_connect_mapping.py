"""CONNECT and CONNACK, freed from the differences between versions."""

from __future__ import annotations

import pytest
from rig import Gateway

from gateway.connections.connect_mapping import accepts_bytes_max, arriving, publish_properties, terms, will_properties
from gateway.connections.guests import Grant
from gateway.login.auth import Identity
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Connack, Connect, Publish, Will
from gateway.mqtt.properties import NO_PROPERTIES, Properties
from gateway.mqtt.reader import PacketReader
from gateway.settings import GatewaySettings
from penstock.protocol.message import NEVER
from penstock.protocol.requests.sessions import NEVER_ENDS


@pytest.mark.parametrize(
    ("level", "clean_start", "asked", "expiry_s"),
    [(4, True, None, 0), (4, False, None, NEVER_ENDS), (5, False, None, 0), (5, True, 60, 60), (5, False, 60, 60)],
)
def test_how_long_a_session_outlives_its_connection(
    level: int, clean_start: bool, asked: int | None, expiry_s: int
) -> None:
    packet = Connect("c", clean_start, level=level, properties=Properties(session_expiry_interval=asked))
    assert arriving(packet).expiry_s == expiry_s


def test_what_is_not_asked_for_is_the_standards_default() -> None:
    asked = arriving(Connect("c", level=5))
    assert (asked.receive_max, asked.will) == (65_535, None)
    assert accepts_bytes_max(Connect("c", level=5)) > 268_435_455
    assert accepts_bytes_max(Connect("c", properties=Properties(maximum_packet_size=100))) == 100


def test_a_will_takes_its_delay_and_expiry_out_of_its_properties() -> None:
    properties = Properties(will_delay_interval=5, message_expiry_interval=9, content_type="t")
    will = arriving(Connect("c", level=5, will=Will("w", b"x", 2, True, properties))).will
    assert will is not None
    assert (will.delay_s, will.expiry_s, will.qos, will.retain) == (5, 9, 2, True)
    assert will.application == b"\x03\x00\x01t"
    assert will_properties(NO_PROPERTIES) == (NEVER, b"")


def test_the_properties_of_a_publish_are_forwarded_as_they_came_without_those_of_the_hop() -> None:
    properties = Properties(topic_alias=3, message_expiry_interval=7, user_properties=(("b", "1"), ("a", "2")))
    reader = PacketReader(1000)
    reader.level = 5
    [packet] = reader.receive(encode(Publish("a", b"", properties=properties), 5))
    assert isinstance(packet, Publish)
    assert publish_properties(packet) == (7, bytes.fromhex("26000162000131" + "26000161000132"))
    assert publish_properties(Publish("a", b"")) == (NEVER, b"")


def test_only_what_differs_from_what_was_asked_is_told() -> None:
    settings = GatewaySettings()
    asked = arriving(Connect("c", level=5, keep_alive_s=30, properties=Properties(session_expiry_interval=60)))
    same = Grant(Identity("c", ""), 30, 60, False)
    told = terms(asked, same, settings)
    assert (told.assigned_client_id, told.keep_alive_s, told.expiry_s) == (None, None, None)
    other = terms(asked._replace(expiry_s=100), same._replace(keep_alive_s=20, was_assigned=True), settings)
    assert (other.assigned_client_id, other.keep_alive_s, other.expiry_s) == ("c", 20, 60)


@pytest.mark.mqtt("3.1.2-28")
@pytest.mark.parametrize(
    ("client_id", "asks", "prefix", "told"),
    [
        ("c", 1, "replies", "replies/c"),
        ("c", 0, "replies", None),
        ("c", None, "replies", None),
        ("c", 1, "", None),
        ("c/+", 1, "replies", None),
    ],
)
def test_response_information_is_for_those_who_ask(
    client_id: str, asks: int | None, prefix: str, told: str | None
) -> None:
    client = Gateway(response_prefix=prefix).open(5)
    client.send(Connect(client_id, properties=Properties(request_response_information=asks), level=5))
    assert client.got_one(Connack).properties.response_information == told
