"""What an operator sees of a client's packets."""

from __future__ import annotations

from gateway.connections.taps import ASKED_WITHIN_S, LINES_MAX, TAPS_MAX, Lines, Tap, Taps
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import LEVEL_5, Auth, Packet, Pingreq, Publish, Pubrec, Unsubscribe
from gateway.mqtt.properties import Properties


class Connection:
    """A connection that can be followed."""

    def __init__(self) -> None:
        self.tap: Tap | None = None

    @property
    def level(self) -> int:
        return LEVEL_5


def written(*packets: Packet) -> bytes:
    return b"".join([encode(packet, LEVEL_5) for packet in packets])


def test_packets_are_told_whatever_the_pieces_and_no_secret_and_payload_is() -> None:
    lines = Lines()
    tap = Tap(LEVEL_5, lines, 0.0)
    secret = Auth(0x18, Properties(authentication_method="SCRAM-SHA-256", authentication_data=b"hunter2"))
    data = written(
        Publish("a" * 300, b"hunter2", qos=2, packet_id=9, retain=True, dup=True),
        Publish("", b"x", properties=Properties(topic_alias=3)),
        Unsubscribe(4, ("b", "c/#")),
        Pubrec(9, 0x97),
        secret,
    )
    for at in range(len(data)):
        assert tap.came(data[at : at + 1], 0, 1.0, 5_000)
    seen = lines.after(0)
    assert [(one.kind, one.packet_id, one.name, one.reasons) for one in seen] == [
        ("PUBLISH", 9, "a" * 200, ()),
        ("PUBLISH", 0, "alias 3", ()),
        ("UNSUBSCRIBE", 4, "b c/#", ()),
        ("PUBREC", 9, "", (0x97,)),
        ("AUTH", 0, "", (0x18,)),
    ]
    assert (seen[0].retain, seen[0].dup, seen[0].qos, seen[0].payload_bytes, seen[0].at_ms) == (True, True, 2, 7, 5_000)
    assert "hunter2" not in repr(seen)


def test_a_tap_waits_for_the_end_of_a_packet_that_had_begun_and_stops_at_bytes_that_are_none() -> None:
    lines = Lines()
    tap = Tap(LEVEL_5, lines, 0.0)
    tap.came(b"the rest of a packet", 3, 0.0, 0)
    assert lines.after(0) == ()
    tap.came(written(Pingreq()) + b"\x00\x00", 0, 0.0, 0)
    tap.came(written(Pingreq()), 0, 0.0, 0)
    assert [one.kind for one in lines.after(0)] == ["PINGREQ", "unreadable"]
    assert not tap.came(b"", 0, ASKED_WITHIN_S + 1, 0)
    assert tap.went(b"", ASKED_WITHIN_S, 0)
    assert not tap.went(b"", ASKED_WITHIN_S + 1, 0), "a client that only receives is not followed for ever"


def test_lines_and_clients_are_bounded_and_numbers_show_what_is_lost() -> None:
    lines = Lines()
    for _ in range(LINES_MAX + 5):
        lines.add(0, True, "PINGRESP")
    assert [lines.after(0)[0].number, len(lines.after(0)), len(lines.after(LINES_MAX))] == [6, LINES_MAX, 5]
    assert len(lines.after(10 * LINES_MAX)) == LINES_MAX, "a gateway that has begun anew has smaller numbers"
    taps, connections = Taps(), [Connection() for _ in range(TAPS_MAX + 1)]
    for number, connection in enumerate(connections):
        assert taps.ask(str(number), connection, 0, 0.0) == ()
    first, last = connections[0].tap, connections[-1].tap
    taps.ask(str(TAPS_MAX), connections[-1], 0, 1.0)
    assert connections[-1].tap is last
    taps.ask("0", connections[0], 0, 1.0)
    assert connections[0].tap is not first, "the one least recently asked for had given way"
