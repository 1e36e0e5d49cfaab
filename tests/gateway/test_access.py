"""Who is let in by a password, how often it is really checked, and what each may do then."""

from __future__ import annotations

from rig import Client, Gateway

from gateway.access import Access
from gateway.auth import Credentials, Identity, Peer
from gateway.mqtt.packets import Connack, Connect, Disconnect, Publish, Will
from gateway.mqtt.properties import Properties
from penstock.access.acl import parse_acl
from penstock.access.passwords import Users, hash_password, verify
from penstock.message import decode_message

RIGHT = hash_password(b"right", bytes(16))


class Door:
    """An ``Access`` with one user, and the checks that a thread would do."""

    def __init__(self, anonymous: str = "nobody", waiting_max: int = 10, remember_s: float = 60.0) -> None:
        self.now = 0.0
        self.access = Access(anonymous, waiting_max, remember_s, b"key", lambda: None, lambda: self.now)
        self.access.set_users(Users({"alice": RIGHT}))

    def check_all(self) -> int:
        count = 0
        while (check := self.access.take()) is not None:
            self.access.checked_as(check, verify(check.hashed, check.password))
            count += 1
        return count

    def connect(self, user: str | None, password: bytes | None, client: str = "c") -> list[Identity | int]:
        answers: list[Identity | int] = []
        self.access.connect(Credentials(client, user, password, Peer("10.0.0.1")), answers.append)
        return answers


def test_the_right_password_gives_the_users_identity_and_a_wrong_one_is_refused() -> None:
    door = Door()
    right, wrong, unknown = door.connect("alice", b"right"), door.connect("alice", b"wrong"), door.connect("bob", b"x")
    assert right == wrong == unknown == [], "nobody is answered before the check"
    assert door.check_all() == 3, "an unknown user takes as long as a known one"
    assert (right, wrong, unknown) == ([Identity("c", "alice")], [0x86], [0x86])
    assert (door.access.checked, door.access.refused) == (3, 2)


def test_nobody_comes_without_credentials_where_that_is_not_allowed() -> None:
    assert Door("nobody").connect(None, None) == [0x87]
    assert Door("everyone").connect(None, None) == [Identity("c", "")]
    door = Door("everyone")
    wrong = door.connect("alice", None)
    door.check_all()
    assert wrong == [0x86], "a name without its password is not anonymous"


def test_a_reconnecting_herd_is_let_in_without_checking_again() -> None:
    door = Door()
    door.connect("alice", b"right")
    door.check_all()
    for number in range(100):
        assert door.connect("alice", b"right", f"c{number}") == [Identity(f"c{number}", "alice")]
    assert door.check_all() == 0
    assert door.access.remembered == 100
    assert door.connect("alice", b"wrong") == [], "a wrong password is never remembered as right"
    door.check_all()
    door.now = 61.0
    assert door.connect("alice", b"right") == [], "checked again after a while"


def test_a_changed_or_removed_user_is_not_remembered() -> None:
    for users in ({}, {"alice": hash_password(b"new", bytes(16))}):
        door = Door()
        door.connect("alice", b"right")
        door.check_all()
        door.access.set_users(Users(users))
        late = door.connect("alice", b"right")
        door.check_all()
        assert late == [0x86]


def test_an_answer_from_before_the_change_is_void() -> None:
    door = Door()
    answers = door.connect("alice", b"right")
    check = door.access.take()
    assert check is not None
    door.access.set_users(Users({}))
    door.access.checked_as(check, True)
    assert answers == [0x86]


def test_when_too_many_wait_the_others_are_told_to_come_back() -> None:
    door = Door(waiting_max=2)
    answers = [door.connect("alice", b"%d" % number) for number in range(5)]
    assert answers == [[], [], [0x89], [0x89], [0x89]]
    assert door.access.busy == 3


def test_what_waits_shows_no_password() -> None:
    door = Door()
    door.connect("alice", b"hush-hush")
    assert "hush-hush" not in repr(door.access.take())


RULES = """
deny all all secret/#
allow user alice publish devices/%c/#
allow user alice subscribe public/#
allow user alice subscribe devices/%c/#
"""


def gateway_with(rules: str) -> tuple[Gateway, Door]:
    door = Door()
    door.access.set_acl(parse_acl(rules))
    return Gateway(door.access), door


def come(gateway: Gateway, door: Door, client_id: str = "d1", **asked: object) -> Client:
    client = gateway.open(5)
    client.send(Connect(client_id, user_name="alice", password=b"right", level=5, **asked))  # type: ignore[arg-type]
    gateway.rounds.begin()
    door.check_all()
    gateway.round()
    return client


def test_a_client_does_what_its_rules_allow_and_nothing_else() -> None:
    gateway, door = gateway_with(RULES)
    client = come(gateway, door)
    assert client.got_one(Connack).reason_code == 0
    client.publish("devices/d1/state", b"mine", 1, packet_id=1)
    client.publish("devices/d2/state", b"not mine", 1, packet_id=2)
    first, second = client.got()
    assert (first.reason_code, second.reason_code) == (0, 0x87)  # type: ignore[union-attr]
    assert [decode_message(record).body for record in gateway.broker.log] == [b"mine"]
    assert client.subscribe("public/a", "secret/a", "#", "devices/d1/in", "devices/+/in").reason_codes == (
        2,
        0x87,
        0x87,
        2,
        0x87,
    )


def test_an_id_with_a_wildcard_gains_nothing() -> None:
    for client_id in ("+", "#", "d1/x"):
        gateway, door = gateway_with(RULES)
        client = come(gateway, door, client_id)
        client.got_one(Connack)
        assert client.subscribe("devices/+/in", "devices/#", "devices/d1/x/in").reason_codes == (0x87, 0x87, 0x87)


def test_a_will_that_is_not_allowed_is_refused_at_connect_and_never_published() -> None:
    gateway, door = gateway_with(RULES)
    client = come(gateway, door, will=Will("devices/other/w", b"x"))
    assert client.got_one(Connack).reason_code == 0x87
    assert gateway.broker.log == []


def test_a_resumed_session_keeps_only_what_it_may_still_have() -> None:
    gateway, door = gateway_with(RULES)
    asked = {"clean_start": False, "properties": Properties(session_expiry_interval=100)}
    client = come(gateway, door, **asked)
    client.got_one(Connack)
    client.subscribe("public/a", "devices/d1/in")
    client.send(Disconnect())
    door.access.set_acl(parse_acl("allow user alice subscribe devices/%c/#"))
    again = come(gateway, door, **asked)
    assert again.got_one(Connack).session_present
    gateway.produce("public/a", b"no more", qos=1)
    gateway.produce("devices/d1/in", b"still", qos=1)
    gateway.round()
    assert [packet.payload for packet in again.got() if isinstance(packet, Publish)] == [b"still"]


def test_rules_that_change_count_from_the_next_new_name_on() -> None:
    gateway, door = gateway_with(RULES)
    client = come(gateway, door)
    client.got_one(Connack)
    door.access.set_acl(parse_acl(""))
    assert client.subscribe("public/a").reason_codes == (0x87,)


def test_another_users_client_id_gives_neither_its_session_nor_its_end() -> None:
    door = Door()
    door.access.set_users(Users({"alice": RIGHT, "mallory": RIGHT}))
    gateway = Gateway(door.access)
    asked = {"clean_start": False, "properties": Properties(session_expiry_interval=100)}
    victim = come(gateway, door, "d1", **asked)
    victim.got_one(Connack)
    victim.subscribe("t")
    for is_there in (True, False):
        for clean_start in (True, False):
            thief = gateway.open(5)
            thief.send(Connect("d1", clean_start, user_name="mallory", password=b"right", level=5))
            gateway.rounds.begin()
            door.check_all()
            gateway.round()
            assert thief.got_one(Connack).reason_code == 0x87
        if is_there:
            assert not victim.is_closed
            victim.send(Disconnect())
    gateway.produce("t", b"hers", qos=1)
    again = come(gateway, door, "d1", **asked)
    connack, message = again.got()
    assert isinstance(connack, Connack)
    assert connack.session_present
    assert isinstance(message, Publish)
    assert message.payload == b"hers"


def test_a_checked_certificate_is_an_identity_and_a_user_name_beside_it_still_needs_its_password() -> None:
    door = Door()
    answers: list[Identity | int] = []
    peer = Peer("10.0.0.1", "device-7", "secure")
    door.access.connect(Credentials("c", None, None, peer), answers.append)
    assert answers.pop() == Identity("c", "device-7")
    door.access.connect(Credentials("c", "alice", b"wrong", peer), answers.append)
    door.check_all()
    assert answers == [0x86]
