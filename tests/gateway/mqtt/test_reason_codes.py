from __future__ import annotations

from gateway.mqtt.reason_codes import ALLOWED, MalformedPacket, ProtocolViolation, ReasonCode
from penstock.errors import ProtocolError


def test_every_code_that_a_packet_may_carry_has_a_name() -> None:
    named = {int(code) for code in ReasonCode}
    assert {code for codes in ALLOWED.values() for code in codes} <= named


def test_every_code_but_that_of_a_bad_password_and_the_like_is_carried_somewhere() -> None:
    carried = {code for codes in ALLOWED.values() for code in codes}
    assert {int(code) for code in ReasonCode} - carried == set()


def test_both_errors_are_the_peers_fault_and_say_their_code() -> None:
    assert MalformedPacket("x").reason_code == 0x81
    assert ProtocolViolation("x").reason_code == 0x82
    assert ProtocolViolation("x", ReasonCode.PACKET_TOO_LARGE).reason_code == 0x95
    assert isinstance(MalformedPacket("x"), ProtocolError)
    assert MalformedPacket("x").fault == "client"
