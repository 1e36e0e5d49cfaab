"""MQTT 3.1.1 packets for load: made once from templates, compared and acknowledged as whole slices of bytes.

A ``Ring`` is a closed sequence of QoS 1 PUBLISH packets that differ only in packet id and sequence number. All of them
have the same size, so that sending, checking acknowledgements and checking deliveries are slices and comparisons over
whole batches: Python's work per message is next to nothing, and still every byte that comes back is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

CONNACK_OK: Final = b"\x20\x02\x00\x00"
CONNACK_PRESENT: Final = b"\x20\x02\x01\x00"
DISCONNECT: Final = b"\xe0\x00"
PUBLISH_QOS0: Final = 0x30
PUBLISH_QOS1: Final = 0x32
SEQUENCE_BYTES: Final = 4


def _text(text: str) -> bytes:
    raw = text.encode()
    return len(raw).to_bytes(2, "big") + raw


def _packet(first: int, rest: bytes) -> bytes:
    size, length = len(rest), bytearray()
    while True:
        size, digit = size >> 7, size & 0x7F
        length.append(digit | (0x80 if size else 0))
        if not size:
            return bytes([first]) + bytes(length) + rest


def connect(client_id: str, *, clean: bool = True) -> bytes:
    """CONNECT without keep-alive; of a session that ends with the connection, or of one that stays."""
    return _packet(0x10, _text("MQTT") + b"\x04" + (b"\x02" if clean else b"\x00") + b"\x00\x00" + _text(client_id))


def subscribe(*filters: str, qos: int = 1) -> bytes:
    """SUBSCRIBE to filters, packet id 1."""
    return _packet(0x82, b"\x00\x01" + b"".join([_text(filter) + bytes([qos]) for filter in filters]))


def retain(topic: str, packet_id: int, payload: bytes) -> bytes:
    """PUBLISH of a retained message with QoS 1."""
    return _packet(PUBLISH_QOS1 | 1, _text(topic) + packet_id.to_bytes(2, "big") + payload)


def retained(topic: str, payload: bytes) -> bytes:
    """The same as a new subscriber with QoS 0 gets it."""
    return _packet(PUBLISH_QOS0 | 1, _text(topic) + payload)


def suback(count: int) -> bytes:
    """The SUBACK that grants so many filters QoS 1."""
    return _packet(0x90, b"\x00\x01" + b"\x01" * count)


SUBACK_QOS1: Final = b"\x90\x03\x00\x01\x01"


class Ring:
    """``count`` packets to one topic, for ever in a circle; packet ``n`` has the packet id ``n % count + 1``.

    With ``names``, all of one length, packet ``n`` goes to the topic with the ``n``-th of them instead of ``{}``.

    Attributes:
        size: bytes of one packet.
        packets: all packets end to end, as they are sent.
        acks: their PUBACKs end to end, as they are expected.
        deliveries: the packets with packet id zero, as a subscriber gets them once the server's id is taken out.
        id_at: where in a packet its packet id stands.
    """

    def __init__(self, topic: str, payload_bytes: int, count: int, names: Sequence[str] = ()) -> None:
        if not payload_bytes >= SEQUENCE_BYTES or not 0 < count < 65_536:
            raise ValueError(f"a payload of {payload_bytes} bytes, {count} packets")
        filler = bytes(payload_bytes - SEQUENCE_BYTES)
        self.count = count
        sent, expected = [], []
        for number in range(count):
            payload = number.to_bytes(SEQUENCE_BYTES, "big") + filler
            name = _text(topic.replace("{}", names[number % len(names)]) if names else topic)
            sent.append(_packet(PUBLISH_QOS1, name + (number + 1).to_bytes(2, "big") + payload))
            expected.append(_packet(PUBLISH_QOS1, name + b"\x00\x00" + payload))
        self.size = len(sent[0])
        assert len(sent[-1]) == self.size
        self.packets = b"".join(sent)
        self.deliveries = b"".join(expected)
        self.acks = b"".join([b"\x40\x02" + (number + 1).to_bytes(2, "big") for number in range(count)])
        self.id_at = self.size - payload_bytes - 2

    def cut(self, data: bytes, size: int, first: int, count: int) -> bytes:
        """``count`` pieces of ``size`` bytes from number ``first`` on, around the circle."""
        at = first % self.count
        if at + count <= self.count:
            return data[at * size : (at + count) * size]
        turns, rest = divmod(at + count, self.count)
        return data[at * size :] + data * (turns - 1) + data[: rest * size]

    def is_delivery(self, packets: bytearray, first: int) -> bool:
        """Whether whole packets are exactly the deliveries from number ``first`` on. Takes their ids out in place."""
        count = len(packets) // self.size
        zeros = bytes(count)
        packets[self.id_at :: self.size] = zeros
        packets[self.id_at + 1 :: self.size] = zeros
        return packets == self.cut(self.deliveries, self.size, first, count)

    def acks_of(self, packets: bytes | bytearray) -> bytes:
        """The PUBACKs of whole delivered packets, with the server's ids."""
        count = len(packets) // self.size
        acks = bytearray(4 * count)
        acks[0::4] = b"\x40" * count
        acks[1::4] = b"\x02" * count
        acks[2::4] = packets[self.id_at :: self.size]
        acks[3::4] = packets[self.id_at + 1 :: self.size]
        return bytes(acks)
