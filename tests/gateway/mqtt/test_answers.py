"""The short packets of the QoS exchanges, against the codec."""

from __future__ import annotations

import pytest

from gateway.mqtt.answers import PINGRESP, PUBACK, PUBCOMP, PUBREC, PUBREL, answer, mark, refusal, with_properties
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Packet, Pingresp, Puback, Pubcomp, Pubrec, Pubrel
from gateway.mqtt.properties import Properties, encode_properties, property_block

KINDS = [(PUBACK, Puback), (PUBREC, Pubrec), (PUBREL, Pubrel), (PUBCOMP, Pubcomp)]


@pytest.mark.parametrize(("first", "kind"), KINDS)
@pytest.mark.parametrize("packet_id", [1, 258, 65_535])
@pytest.mark.parametrize("reason", [0, 0x92])
def test_an_answer_is_what_the_codec_writes(first: int, kind: type[Packet], packet_id: int, reason: int) -> None:
    assert answer(first, packet_id, reason) == encode(kind(packet_id, reason), 5)  # type: ignore[call-arg,arg-type]


def test_the_mark_of_a_publish_follows_its_qos() -> None:
    assert [mark(qos, 7) for qos in (0, 1, 2)] == [b"", encode(Puback(7), 4), encode(Pubrec(7), 4)]


def test_a_refusal_is_the_mark_with_a_reason() -> None:
    assert refusal(mark(1, 300), 0x97) == encode(Puback(300, 0x97), 5)
    assert refusal(mark(2, 300), 0x87) == encode(Pubrec(300, 0x87), 5)


@pytest.mark.parametrize(("qos", "kind"), [(1, Puback), (2, Pubrec)])
@pytest.mark.parametrize("size", [0, 114])
def test_an_answer_with_properties_is_what_the_codec_writes(qos: int, kind: type[Packet], size: int) -> None:
    said = Properties(user_properties=(("name", "x" * size),))
    block = property_block(encode_properties(said))
    assert with_properties(mark(qos, 300), block) == encode(kind(300, 0, said), 5)  # type: ignore[call-arg,arg-type]


def test_a_pingresp_says_nothing() -> None:
    assert encode(Pingresp(), 4) == PINGRESP
