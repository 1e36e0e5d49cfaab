"""Every kind of error that a client can make, and exactly what it is told: by MQTT 5 the reason code, before that the
return code or the failure code where there is one, and the close alone where there is none (MQTT 5, 4.13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rig import Client, Gateway

from gateway.login.auth import Credentials, Identity, Peer
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from gateway.mqtt.properties import Properties
from penstock.errors import Busy, InvalidTopic, StorageFull
from tests.conformance.wire_cases import block, connect, number, packet, text

ID = b"\x00\x01"
NO = b"\x00"  # no properties
SETTINGS: dict[str, Any] = {
    "packet_bytes_max": 2000,
    "receive_max": 2,
    "topic_alias_max": 4,
    "user_properties_max": 3,
    "filters_per_packet_max": 3,
}
PAIR = b"\x26" + text("k") + text("v")

# What is wrong -> reason code, its bytes in MQTT 5, and in 3.1.1 where it exists there.
WRONG: dict[str, tuple[int, bytes, bytes | None]] = {
    "packet type 0": (0x81, b"\x00\x00", b"\x00\x00"),
    "packet type 15 before MQTT 5, AUTH not agreed": (0x82, b"\xf0\x00", b"\xf0\x00"),
    "reserved flags of PINGREQ": (0x81, b"\xc1\x00", b"\xc1\x00"),
    "reserved flags of SUBSCRIBE": (0x81, packet(0x80, ID, NO, text("a"), NO), packet(0x80, ID, text("a"), NO)),
    "reserved flags of UNSUBSCRIBE": (0x81, packet(0xA0, ID, NO, text("a")), packet(0xA0, ID, text("a"))),
    "reserved flags of PUBREL": (0x81, packet(0x60, ID), packet(0x60, ID)),
    "reserved flags of DISCONNECT": (0x81, b"\xe1\x00", b"\xe1\x00"),
    "remaining length of five bytes": (0x81, b"\x30\xff\xff\xff\xff\x01", b"\x30\xff\xff\xff\xff\x01"),
    "remaining length padded": (0x81, b"\xc0\x80\x00", b"\xc0\x80\x00"),
    "packet over the maximum": (0x95, b"\x30" + number(3000), b"\x30" + number(3000)),
    "packet cut short": (0x81, packet(0x40, b"\x00"), packet(0x40, b"\x00")),
    "bytes behind the last field": (0x81, packet(0xC0, b"x"), packet(0xC0, b"x")),
    "QoS 3": (0x81, packet(0x36, text("a"), ID, NO), packet(0x36, text("a"), ID)),
    "DUP with QoS 0": (0x82, packet(0x38, text("a"), NO), packet(0x38, text("a"))),
    "packet identifier 0": (0x82, packet(0x32, text("a"), b"\x00\x00", NO), packet(0x32, text("a"), b"\x00\x00")),
    "topic name with +": (0x82, packet(0x30, text("a/+"), NO), packet(0x30, text("a/+"))),
    "topic name with #": (0x82, packet(0x30, text("#"), NO), packet(0x30, text("#"))),
    "no topic name": (0x82, packet(0x30, text(""), NO), packet(0x30, text(""))),
    "topic name that is no UTF-8": (0x81, packet(0x30, text(b"\xff"), NO), packet(0x30, text(b"\xff"))),
    "topic name with U+0000": (0x81, packet(0x30, text("a\0"), NO), packet(0x30, text("a\0"))),
    "property without meaning": (0x81, packet(0x30, text("a"), block(b"\x05\x00")), None),
    "property of another packet": (0x81, packet(0x30, text("a"), block(b"\x21\x00\x01")), None),
    "property twice": (0x82, packet(0x30, text("a"), block(b"\x01\x01\x01\x01")), None),
    "property block too long": (0x81, packet(0x30, text("a"), b"\x09"), None),
    "payload format 2": (0x82, packet(0x30, text("a"), block(b"\x01\x02")), None),
    "response topic with a wildcard": (0x82, packet(0x30, text("a"), block(b"\x08" + text("+"))), None),
    "subscription identifier from a client": (0x82, packet(0x30, text("a"), block(b"\x0b\x01")), None),
    "topic alias 0": (0x94, packet(0x30, text("a"), block(b"\x23\x00\x00")), None),
    "topic alias above the maximum": (0x94, packet(0x30, text("a"), block(b"\x23\x00\x05")), None),
    "topic alias never given": (0x82, packet(0x30, text(""), block(b"\x23\x00\x01")), None),
    "more publications than the receive maximum": (
        0x93,
        b"".join(packet(0x34, text("a"), bytes((0, at)), NO) for at in (1, 2, 3)),
        None,
    ),
    "more user properties than taken": (0x97, packet(0x82, ID, block(PAIR * 4), text("a"), NO), None),
    "SUBSCRIBE without a filter": (0x82, packet(0x82, ID, NO), packet(0x82, ID)),
    "SUBSCRIBE with identifier 0": (
        0x82,
        packet(0x82, b"\x00\x00", NO, text("a"), NO),
        packet(0x82, b"\x00\x00", text("a"), NO),
    ),
    "reserved options": (0x81, packet(0x82, ID, NO, text("a"), b"\xc0"), packet(0x82, ID, text("a"), b"\xc0")),
    "subscription with QoS 3": (0x82, packet(0x82, ID, NO, text("a"), b"\x03"), packet(0x82, ID, text("a"), b"\x03")),
    "retain handling 3": (0x82, packet(0x82, ID, NO, text("a"), b"\x30"), None),
    "no local on a shared subscription": (0x82, packet(0x82, ID, NO, text("$share/g/a"), b"\x04"), None),
    "subscription identifier 0": (0x82, packet(0x82, ID, block(b"\x0b\x00"), text("a"), NO), None),
    "two subscription identifiers": (0x82, packet(0x82, ID, block(b"\x0b\x01\x0b\x02"), text("a"), NO), None),
    "more filters than taken": (
        0x97,
        packet(0x82, ID, NO, (text("a") + NO) * 4),
        packet(0x82, ID, (text("a") + NO) * 4),
    ),
    "UNSUBSCRIBE without a filter": (0x82, packet(0xA2, ID, NO), packet(0xA2, ID)),
    "reason code that PUBACK has not": (0x82, packet(0x40, ID, b"\x92"), None),
    "reason code that DISCONNECT has not": (0x82, packet(0xE0, b"\x01"), None),
    "expiry raised from 0 at the end": (0x82, packet(0xE0, NO, block(b"\x11\x00\x00\x00\x05")), None),
    "second CONNECT": (0x82, connect(0x02, NO, text("c"), level=5), connect(0x02, text("c"))),
    "CONNACK from a client": (0x82, b"\x20\x03\x00\x00\x00", b"\x20\x02\x00\x00"),
    "SUBACK from a client": (0x82, packet(0x90, ID, NO, NO), packet(0x90, ID, NO)),
    "UNSUBACK from a client": (0x82, packet(0xB0, ID, NO, NO), packet(0xB0, ID)),
    "PINGRESP from a client": (0x82, b"\xd0\x00", b"\xd0\x00"),
}


def ended(client: Client, reason: int, bystander: Client) -> None:
    """The connection is closed, MQTT 5 has been told why as the last word, and the bystander is served."""
    told = [one.reason_code for one in client.got() if isinstance(one, Disconnect)]
    assert told == ([reason] if client.level == 5 else [])
    assert client.is_closed
    bystander.send(Pingreq())
    assert bystander.got() == [Pingresp()]


@pytest.mark.mqtt("4.13.1-1", "4.13.2-1", "3.14.2-1", "3.14.4-2", "4.13", "3.2.2-15", old=("4.8.0-1", "4.8.0-2"))
@pytest.mark.parametrize("what", WRONG)
def test_an_error_after_the_connack_ends_the_connection_with_its_reason(what: str) -> None:
    gateway = Gateway(**SETTINGS)
    bystander = gateway.connect("bystander")
    reason, new, old = WRONG[what]
    client = gateway.connect("new", level=5)
    client.send_bytes(new)
    ended(client, reason, bystander)
    if old is not None:
        client = gateway.connect("old", level=4)
        client.send_bytes(old)
        ended(client, reason, bystander)
    assert len(gateway.connections) == 1


class Door:
    """Lets in only the right password, and nobody where it must not be."""

    def connect(self, shown: Credentials, done: Callable[[Identity | int], None]) -> None:
        if shown.user_name is None:
            done(0x87)
        else:
            done(Identity(shown.client_id, shown.user_name) if shown.password == b"right" else 0x86)

    def may_connect(self, identity: Identity, peer: Peer) -> bool:
        return True

    def may_stay(self, identity: Identity) -> bool:
        return True

    def takes_back(self, identity: Identity, user_name: str) -> bool:
        return False

    def may_publish(self, identity: Identity, name: str) -> bool:
        return not name.startswith("secret")

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        return not filter.startswith("secret")

    def is_gone(self, identity: Identity) -> bool:
        return False

    def may_position(self, identity: Identity, name: str) -> bool:
        return not name.startswith("secret")


GOOD: dict[str, Any] = {"user_name": "u", "password": b"right"}

# What is asked -> what MQTT 5 is told in the CONNACK, and 3.1.1 (None: the close alone).
REFUSED: dict[str, tuple[dict[str, Any], int, int | None]] = {
    "wrong password": ({"user_name": "u", "password": b"wrong"}, 0x86, 4),
    "no user name": ({}, 0x87, 5),
    "identifier too long": (GOOD | {"client_id": "x" * 300}, 0x85, 2),
    "identifier with control characters": (GOOD | {"client_id": "a\x7f"}, 0x85, 2),
    "will that is not allowed": (GOOD | {"will": Will("secret/w", b"")}, 0x87, 5),
    "will of the system": (GOOD | {"will": Will("$SYS/w", b"")}, 0x87, 5),
    "will too deep": (GOOD | {"will": Will("/" * 200, b"")}, 0x90, None),
}


@pytest.mark.mqtt("3.1.4-2", "3.2.2-6", "3.2.2-7", "3.2.2-8", old=("3.2.2-4", "3.2.2-5", "3.2.2-6"))
@pytest.mark.parametrize("what", REFUSED)
def test_a_connect_that_is_refused_is_told_why(what: str) -> None:
    asked, new, old = REFUSED[what]
    gateway = Gateway(Door())
    for level, code in ((5, new), (4, old), (3, old)):
        client = gateway.open(level)
        client.send(Connect(**({"client_id": "c"} | asked), level=level))  # type: ignore[arg-type]
        assert [(one.session_present, one.reason_code) for one in client.got()] == (  # type: ignore[union-attr]
            [] if code is None else [(False, code)]
        )
        assert client.is_closed
    assert len(gateway.connections) == gateway.connections.half_open == 0
    assert gateway.broker.messages() == []


# A CONNECT that cannot be taken -> the code of its CONNACK (None: the close alone; the version is not known to be 5).
UNFIT: dict[str, tuple[bytes, int | None]] = {
    "level 6": (connect(0x02, NO, text("c"), level=6), 1),
    "other name": (connect(0x02, text("c"), name="MQTTX"), 1),
    "reserved flag": (connect(0x03, NO, text("c"), level=5), 0x81),
    "will QoS 3": (connect(0x1E, text("c"), text("w"), text("")), None),
    "password alone in 3.1.1": (connect(0x42, text("c"), text("p")), None),
    "cut short": (packet(0x10, text("MQTT"), b"\x04"), None),
    "data without a method": (connect(0x02, block(b"\x16" + text("x")), text("c"), level=5), 0x82),
    "receive maximum 0": (connect(0x02, block(b"\x21\x00\x00"), text("c"), level=5), 0x82),
    "another packet first": (packet(0x30, text("a")), None),
    "a CONNECT of 100 KiB": (packet(0x10, bytes(100_000)), None),
    "HTTP": (b"GET / HTTP/1.1\r\n\r\n", None),
}


@pytest.mark.mqtt("3.1.4-1", "3.1.2-1", "3.1.2-2", "3.1.2.11", old=("3.1.4-1", "3.1.2-1", "3.1.2-2"))
@pytest.mark.parametrize("what", UNFIT)
def test_a_connect_that_is_none_is_closed(what: str) -> None:
    data, code = UNFIT[what]
    gateway = Gateway()
    client = gateway.open(level=5 if code is not None and code >= 0x80 else 4)
    client.send_bytes(data + b"\xc0\x00")
    assert client.got() == ([] if code is None else [Connack(False, code)])
    assert client.is_closed
    assert len(gateway.connections) == gateway.connections.half_open == 0


@pytest.mark.mqtt("3.9.3-1", "3.9.3-2", "3.8.4-6", "3.8.4-7", old=("3.9.3-1", "3.9.3-2", "3.8.4-5"))
def test_each_filter_of_a_subscribe_has_its_own_code_in_order() -> None:
    gateway = Gateway(Door(), subscriptions_max=3)
    filters = {
        "ok": 2,
        "a/#/b": 0x8F,
        "secret/#": 0x87,
        "+a": 0x8F,
        "$share//x": 0x8F,
        "$share/g/$share/h": 0x8F,
        "$share/g/$oshare/h/x": 0x8F,
        "a": 1,
        "b": 0,
        "one too many": 0x97,
    }
    qos = {"ok": 2, "a": 1}
    asked = Subscribe(7, tuple(Subscription(name, qos.get(name, 0)) for name in filters))
    new, old = gateway.connect("new", level=5, **GOOD), gateway.connect("old", **GOOD)
    for client in (new, old):
        client.send(asked)
    answer = new.got_one(Suback)
    assert (answer.packet_id, answer.reason_codes) == (7, tuple(filters.values()))
    answer = old.got_one(Suback)
    assert answer.reason_codes == tuple([code if code < 0x80 else 0x80 for code in filters.values()])


@pytest.mark.mqtt("3.4.2-1", "3.5.2-1", old=("3.3.5-2",))
@pytest.mark.parametrize(
    ("name", "stored", "reason", "closes_old"),
    [
        ("secret/x", None, 0x87, False),
        ("$SYS/x", None, 0x87, False),
        ("/" * 128, None, 0x90, True),
        ("t", InvalidTopic("x"), 0x90, True),
        ("t", StorageFull("x"), 0x97, None),
        ("t", Busy("x"), 0x97, None),
    ],
)
def test_a_publication_that_is_not_taken_has_its_reason_in_the_answer(
    name: str, stored: Exception | None, reason: int, closes_old: bool | None
) -> None:
    gateway = Gateway(Door())
    new, old = gateway.connect("new", level=5, **GOOD), gateway.connect("old", **GOOD)
    for qos, kind in ((1, Puback), (2, Pubrec)):
        for client in (new, old):
            if stored is not None:
                client.publish("t", b"warm")
                gateway.broker.refused_records = {0: stored}  # type: ignore[dict-item]
            if not client.is_closed and (client is new or closes_old is not None):
                client.publish(name, b"x", qos, packet_id=qos)
            gateway.broker.refused_records = {}
        answer = new.got_one(kind)  # type: ignore[type-var]
        assert answer.reason_code == reason
        assert not new.is_closed
        if closes_old is False:
            assert old.got() == [kind(qos)]
        elif closes_old:
            assert old.is_closed


@pytest.mark.mqtt("3.6.2-1", "3.7.2-1", "3.11.3-1", "3.11.3-2")
def test_what_is_not_there_is_answered_with_its_code() -> None:
    client = Gateway().connect("c", level=5)
    got: list[Packet] = []
    for one in (Pubrel(5), Pubrec(6), Unsubscribe(7, ("nothing", "a/#/b"))):
        client.send(one)
        got += client.got()
    assert [(one.packet_id, getattr(one, "reason_code", None)) for one in got[:2]] == [(5, 0x92), (6, 0x92)]  # type: ignore[union-attr]
    assert got[2].reason_codes[0] == 0x11  # type: ignore[union-attr]
    assert got[2].reason_codes[1] in (0x11, 0x8F)  # type: ignore[union-attr]


@pytest.mark.mqtt("3.1.2-24", "3.2.2-19", "3.9.2-1", "3.14.2-3", "3.4.2-2", "3.5.2-2")
def test_a_reason_string_never_makes_a_packet_larger_than_the_client_takes() -> None:
    gateway = Gateway(subscriptions_max=0, client_id_bytes_max=8, receive_max=1)
    small = Properties(maximum_packet_size=8)
    client = gateway.open(5)
    client.send(Connect("c" * 20, level=5, properties=small))
    assert client.got_one(Connack) == Connack(False, 0x85)
    client = gateway.open(5)
    client.send(Connect("c", level=5, properties=Properties(maximum_packet_size=30)))
    client.got()
    client.send(Subscribe(1, (Subscription("a"),)))
    assert client.got_one(Suback) == Suback(1, (0x97,))
    gateway.broker.holds_replies = True
    client.send(Publish("t", b"", 2, packet_id=1), Publish("t", b"", 2, packet_id=2))
    assert client.got_one(Disconnect).reason_code == 0x93


@pytest.mark.mqtt("3.1.2-24", "3.14.2-3")
def test_an_answer_that_is_too_large_for_the_client_ends_the_connection_instead() -> None:
    gateway = Gateway()
    filters = tuple([f"f/{at}" for at in range(40)])
    for asked in (Subscribe(1, tuple([Subscription(one) for one in filters])), Unsubscribe(1, filters)):
        for expiry_s in (0, 60):
            properties = Properties(maximum_packet_size=32, session_expiry_interval=expiry_s)
            client = gateway.connect("c", level=5, properties=properties)
            client.send(asked)
            assert client.got() == [Disconnect(0x95)]
            assert client.is_closed


@pytest.mark.mqtt("3.1.2-24")
@pytest.mark.parametrize(("size", "answer"), [(15, [Connack(False, 0x95)]), (5, [Connack(False, 0x95)]), (4, [])])
def test_a_client_that_cannot_take_the_connack_is_refused(size: int, answer: list[Packet]) -> None:
    gateway = Gateway()
    watcher = gateway.connect("w", level=5)
    watcher.subscribe("#")
    client = gateway.open(5)
    client.send(Connect("c", level=5, will=Will("will", b""), properties=Properties(maximum_packet_size=size)))
    assert client.got() == answer
    assert client.is_closed
    gateway.pass_time(2)
    assert watcher.got() == []


@pytest.mark.mqtt("3.1.2-24", "3.14.2-3")
def test_the_server_to_go_to_is_told_only_where_there_is_room() -> None:
    gateway = Gateway(redirect_to="another.example:1883", has_moved=True)
    for size, told in ((64, "another.example:1883"), (16, None)):
        client = gateway.open(5)
        client.send(Connect("c", level=5, properties=Properties(maximum_packet_size=size)))
        assert client.got() == [Connack(False, 0x9D, Properties(server_reference=told))]


@pytest.mark.mqtt("3.1.2-24", "3.1.4-5", "4.5.0-1")
@pytest.mark.parametrize("clean_start", [True, False])
def test_a_client_that_cannot_take_the_connack_leaves_the_session_that_it_asked_for_alone(clean_start: bool) -> None:
    """Nothing lost: the message that waits for the session, and the connection that has it."""
    gateway = Gateway()
    lasting = Properties(session_expiry_interval=60)
    gateway.connect("c", level=5, properties=lasting).subscribe("t", qos=1)
    small = Connect("c", clean_start, level=5, properties=Properties(maximum_packet_size=15))
    intruder = gateway.open(5)
    intruder.send(small)
    assert intruder.got() == [Connack(False, 0x95)]
    [device] = gateway.connections.admitted(10)
    assert device.session is not None
    device.drop()
    gateway.produce("t", b"waits")
    intruder = gateway.open(5)
    intruder.send(small)
    assert intruder.got() == [Connack(False, 0x95)]
    client = gateway.open(5)
    client.send(Connect("c", False, level=5, properties=lasting))
    connack, message = client.got()
    assert isinstance(connack, Connack)
    assert isinstance(message, Publish)
    assert (connack.session_present, message.payload) == (True, b"waits")


@pytest.mark.mqtt("4.13.1-1", old=("4.8.0-1",))
@pytest.mark.parametrize("level", [4, 5])
def test_acknowledgements_of_nothing_and_of_the_wrong_kind_close_nothing(level: int) -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=level)
    client.subscribe("a", qos=1)
    gateway.produce("a", b"x", mqtt_topic="a")
    gateway.round()
    sent = client.got_one(Publish).packet_id
    for one in (Puback(sent + 7), Pubcomp(sent), Pubcomp(sent + 7)):
        client.send(one)
        assert (client.got(), client.is_closed) == ([], False)
    missing = 0x92 if level == 5 else 0
    for stray, answer in (
        (Pubrec(sent + 7), Pubrel(sent + 7, missing)),
        (Pubrel(sent + 7), Pubcomp(sent + 7, missing)),
    ):
        client.send(stray)
        assert (client.got(), client.is_closed) == ([answer], False)
    client.send(Puback(sent))
    assert not client.is_closed
