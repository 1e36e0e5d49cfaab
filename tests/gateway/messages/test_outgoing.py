"""What a subscriber is sent, encoded once."""

from __future__ import annotations

import gc
import sys

import pytest
from making import arrival, pulled

from gateway.messages.outgoing import LARGE_BYTES, LIGHT_BYTES, PacketRun, Variant, blob, is_expired
from gateway.mqtt.codec import publish_head


def test_a_qos_0_delivery_is_one_piece_without_an_id() -> None:
    one = blob(arrival(name="a/b", payload=b"hi"), Variant(False, 0, False), 0)
    assert one.packet(77) == b"\x30\x07\x00\x03a/bhi"


def test_a_qos_1_delivery_has_its_id_between_name_and_payload() -> None:
    one = blob(arrival(name="a/b", payload=b"hi"), Variant(False, 1, True), 0)
    assert one.packet(258) == b"\x33\x09\x00\x03a/b\x01\x02hi"
    assert one.size == 11


def test_only_a_resend_has_dup() -> None:
    one = blob(arrival(), Variant(False, 2, False), 0)
    assert one.packet(1)[0] == 0x34
    assert one.packet(1, dup=True)[0] == 0x3C


def test_mqtt5_has_expiry_left_identifiers_and_the_applications_properties() -> None:
    message = arrival(name="t", payload=b"p", expiry_s=10, application=b"\x01\x01")
    one = blob(message, Variant(True, 0, False, (5, 200)), 4500)
    assert one.packet(0) == b"\x30\x11\x00\x01t" + b"\x0c\x02\x00\x00\x00\x06\x0b\x05\x0b\xc8\x01\x01\x01" + b"p"


def test_older_versions_get_no_properties() -> None:
    one = blob(arrival(name="t", payload=b"p", expiry_s=10, application=b"\x01\x01"), Variant(False, 0, False), 0)
    assert one.packet(0) == b"\x30\x04\x00\x01tp"


def test_messages_of_one_device_each_begin_as_their_own_size_and_form_ask_for() -> None:
    forms = [(1, 1, False), (2, 1, False), (2, 2, False), (2, 2, True), (2, 0, True), (1, 1, False)]
    for size, qos, retain in forms:
        message = arrival(name="a/b", payload=bytes(size), qos=2, sender="me")
        head = blob(message, Variant(False, qos, retain), 0).head
        assert head.startswith(publish_head(b"a/b", size, qos, retain))


def test_equal_choices_share_their_bytes() -> None:
    message = arrival()
    first, again, other = (blob(message, Variant(True, 1, retain), 0) for retain in (False, False, True))
    assert first.head is again.head
    assert first.tail is again.tail
    assert first.head != other.head


@pytest.mark.parametrize("is_v5", [False, True])
def test_what_was_encoded_goes_with_its_message_and_waits_for_no_collector(is_v5: bool) -> None:
    """Nobody's memory grows: a megabyte for each client and message was left to the collector, which seldom looks."""
    message = arrival(payload=bytes(LIGHT_BYTES))
    payload = message.payload
    gc.disable()
    try:
        for retain in (False, True):
            blob(message, Variant(is_v5, 1, retain), 0).packet(7)
        del message
        assert sys.getrefcount(payload) == 2, "this test has it, and the count itself"
    finally:
        gc.enable()


def test_of_a_large_message_that_was_sent_only_its_place_is_held() -> None:
    for size in (LIGHT_BYTES // 2, LIGHT_BYTES * 2):
        made = blob(arrival(5, payload=bytes(size), position=77), Variant(False, 2, True, (9,)), 0)
        held = made.sent()
        assert (held.arrival.offset, held.arrival.position, held.arrival.qos) == (5, 77, made.arrival.qos)
        assert (held.qos, held.variant, held.weight, held.size) == (2, made.variant, made.weight, made.size)
        assert len(held.arrival.payload) + len(held.tail) == (0 if size > LIGHT_BYTES else 2 * size)


def test_a_blob_that_tells_the_time_left_is_not_shared() -> None:
    message = arrival(expiry_s=10)
    assert blob(message, Variant(True, 0, False), 0).head != blob(message, Variant(True, 0, False), 5000).head


def test_the_time_left_is_never_more_than_it_was_whatever_the_clocks_say() -> None:
    """The broker's may be ahead of this gateway's: 2**32 - 1 seconds and a millisecond would not fit its four bytes."""
    message = arrival(name="t", payload=b"p", expiry_s=0xFFFF_FFFF)
    assert (
        blob(message, Variant(True, 0, False), -1).packet(0) == b"\x30\x0a\x00\x01t" + b"\x05\x02" + b"\xff" * 4 + b"p"
    )
    message = arrival(name="t", payload=b"p", expiry_s=3)
    assert blob(message, Variant(True, 0, False), -60_000).packet(0)[5:11] == b"\x05\x02\0\0\0\x03"


def test_a_message_expires_when_its_interval_has_passed() -> None:
    message = arrival(expiry_s=10)
    assert not is_expired(message, 9_999)
    assert is_expired(message, 10_000)
    assert not is_expired(arrival(), 1 << 60)


def test_a_run_is_the_packets_one_after_the_other_with_ids_from_the_offsets() -> None:
    batch = [arrival(65_533, payload=b"1"), arrival(65_534, payload=b"2"), arrival(65_535, payload=b"3", qos=0)]
    run = PacketRun(pulled(*batch), False, 2, False, 0)
    assert list(run.in_flight) == [65_534, 65_535]
    parts = [run.in_flight[packet_id].blob(packet_id).packet(packet_id) for packet_id in run.in_flight]
    assert run.data == b"".join([*parts, blob(batch[2], Variant(False, 0, False), 0).head])


@pytest.mark.parametrize("qos", [0, 1])
def test_of_a_large_run_nothing_is_kept_beside_its_packets_and_its_messages_are_made_when_asked_for(qos: int) -> None:
    """Five hundred subscribers of messages of 200 KB, each with an identifier of its own, have five hundred runs."""
    for size in (100, LARGE_BYTES):
        run = PacketRun(pulled(*[arrival(offset, payload=bytes(size)) for offset in (5, 6)]), True, qos, False, 9)
        assert b"".join([made.packet(packet_id) for packet_id, made in run.blobs]) == run.data
        assert (run.blobs[0][1] is run.blobs[0][1]) == (size < LARGE_BYTES)


def test_ids_from_offsets_are_never_0_and_wrap_round() -> None:
    run = PacketRun(pulled(*[arrival(offset) for offset in (65_533, 65_534, 65_535)]), False, 1, False, 0)
    assert list(run.in_flight) == [65_534, 65_535, 1]


def test_a_run_knows_what_would_make_it_unfit_for_a_subscriber() -> None:
    run = PacketRun(pulled(arrival(0, sender="me"), arrival(1, payload=b"x" * 100)), False, 0, False, 0)
    assert b"me" in run.senders
    assert not run.expiring
    assert run.largest > 100
    assert PacketRun(pulled(arrival(0), arrival(1, expiry_s=5)), False, 0, False, 0).expiring
