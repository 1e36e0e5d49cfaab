from __future__ import annotations

import dataclasses
import typing

import pytest

from gateway.mqtt import packets
from gateway.mqtt.packets import Packet, Puback, Publish, Pubrec, Subscription
from gateway.mqtt.properties import NO_PROPERTIES, Properties


@pytest.mark.parametrize("cls", [*typing.get_args(Packet), packets.Will, Subscription])
def test_every_packet_is_a_value_without_a_dictionary(cls: type) -> None:
    assert dataclasses.is_dataclass(cls)
    assert "__slots__" in vars(cls)
    assert cls.__hash__ is not None


def test_packets_of_two_kinds_with_the_same_fields_differ() -> None:
    assert Puback(1) != Pubrec(1)
    assert Puback(1) == Puback(1, 0, NO_PROPERTIES)
    assert len({Puback(1), Puback(1), Pubrec(1)}) == 2


def test_the_received_form_of_properties_does_not_make_a_publish_another() -> None:
    assert Publish("a", b"", properties_raw=b"\x01\x01") == Publish("a", b"")


def test_properties_show_only_what_is_given() -> None:
    assert repr(Properties(topic_alias=0, user_properties=(("a", "b"),))) == (
        "Properties(topic_alias=0, user_properties=(('a', 'b'),))"
    )
