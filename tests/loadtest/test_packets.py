"""The generator's packets, checked by an independent codec where there is one."""

from __future__ import annotations

import pytest

from loadtest.packets import Ring, connect, retain, retained, subscribe
from tests.loadtest.small_server import whole


def test_connect_and_subscribe_have_the_golden_bytes() -> None:
    assert connect("c1") == bytes.fromhex("100e 0004 4d515454 04 02 0000 0002 6331")
    assert subscribe("a/+") == bytes.fromhex("8208 0001 0003 612f2b 01")
    assert subscribe("a/+", qos=0) == bytes.fromhex("8208 0001 0003 612f2b 00")


def test_a_retained_message_has_the_golden_bytes_both_ways() -> None:
    assert retain("a/b", 7, b"x") == bytes.fromhex("3308 0003 612f62 0007 78")
    assert retained("a/b", b"x") == bytes.fromhex("3106 0003 612f62 78")


def test_a_ring_holds_packets_that_differ_in_id_and_number_only() -> None:
    ring = Ring("t/1", payload_bytes=8, count=3)
    packets, rest = whole(ring.packets)
    assert rest == b""
    assert packets[1] == bytes.fromhex("320f 0003 742f31 0002 00000001 00000000")
    assert [packet[ring.id_at : ring.id_at + 2] for packet in packets] == [b"\x00\x01", b"\x00\x02", b"\x00\x03"]
    assert ring.acks == bytes.fromhex("40020001 40020002 40020003")
    assert ring.size * 3 == len(ring.packets)


def test_a_long_packet_has_a_length_of_two_bytes() -> None:
    ring = Ring("t", payload_bytes=1000, count=1)
    assert ring.packets[:3] == b"\x32" + bytes([(1005 & 0x7F) | 0x80, 1005 >> 7])
    assert ring.packets[ring.id_at : ring.id_at + 6] == b"\x00\x01\x00\x00\x00\x00"


@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("count", range(12))
def test_a_cut_goes_around_the_circle(first: int, count: int) -> None:
    ring = Ring("t", payload_bytes=4, count=5)
    expected = b"".join(bytes([65 + number % 5]) * 2 for number in range(first, first + count))
    assert ring.cut(b"AABBCCDDEE", 2, first, count) == expected


def delivered(ring: Ring, *numbers: int) -> bytearray:
    """Deliveries as a server sends them, with ids of its own."""
    packets = bytearray()
    for place, number in enumerate(numbers):
        packet = bytearray(ring.cut(ring.packets, ring.size, number, 1))
        packet[ring.id_at : ring.id_at + 2] = (1000 + place).to_bytes(2, "big")
        packets += packet
    return packets


def test_deliveries_are_known_whatever_ids_the_server_gave_them() -> None:
    ring = Ring("t/1", payload_bytes=8, count=5)
    assert ring.acks_of(delivered(ring, 3, 4, 5)) == bytes.fromhex("400203e8 400203e9 400203ea")
    assert ring.is_delivery(delivered(ring, 3, 4, 5), 3)
    assert ring.is_delivery(delivered(ring, 3, 4, 5), 8)


@pytest.mark.parametrize("numbers", [(4, 3), (3, 3), (3, 5), (2, 3)])
def test_deliveries_out_of_order_doubled_or_missing_are_seen(numbers: tuple[int, int]) -> None:
    ring = Ring("t/1", payload_bytes=8, count=50)
    assert not ring.is_delivery(delivered(ring, *numbers), 3)


def test_a_changed_byte_is_seen_wherever_it_is() -> None:
    ring = Ring("t/1", payload_bytes=8, count=50)
    for at in set(range(ring.size)) - {ring.id_at, ring.id_at + 1}:
        packets = delivered(ring, 3)
        packets[at] ^= 1
        assert not ring.is_delivery(packets, 3)


@pytest.mark.parametrize(("payload_bytes", "count"), [(3, 10), (64, 0), (64, 65_536)])
def test_a_ring_that_cannot_be_is_refused(payload_bytes: int, count: int) -> None:
    with pytest.raises(ValueError, match="payload"):
        Ring("t", payload_bytes, count)
