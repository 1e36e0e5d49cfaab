"""Who is let in by a password, how often it is really checked, and what each may do then."""

from __future__ import annotations

import jwt
import pytest
from rig import Client, Gateway

from gateway.login.access import Access
from gateway.login.attempts import Attempts
from gateway.login.auth import Credentials, Identity, Peer
from gateway.mqtt.packets import Connack, Connect, Disconnect, Publish, Will
from gateway.mqtt.properties import Properties
from gateway.mqtt.reason_codes import Reason
from penstock.access.acl import parse_acl
from penstock.access.passwords import Users, verify
from penstock.access.tokens import TokenKeys, TokenRules
from tests.cheap_passwords import cheap_hash

SECRET = "a secret of this test, with more than 32 bytes in it"
RIGHT = cheap_hash(b"right")


class Door:
    """An ``Access`` with one user, and the checks that a thread would do."""

    def __init__(self, anonymous: str = "nobody", waiting_max: int = 10, remember_s: float = 60.0) -> None:
        self.now = 0.0
        self.access = Access(anonymous, waiting_max, remember_s, b"key", lambda: None, lambda: self.now)
        self.access.set_users(Users({"alice": RIGHT}))

    def check_all(self) -> int:
        count = 0
        while (check := self.access.take()) is not None:
            if not self.access.may_check(check):
                continue
            self.access.checked_as(check, verify(check.hashed, check.password))
            count += 1
        return count

    def connect(
        self, user: str | None, password: bytes | None, client: str = "c", address: str = "10.0.0.1"
    ) -> list[Identity | int]:
        answers: list[Identity | int] = []
        self.access.connect(Credentials(client, user, password, Peer(address)), answers.append)
        return answers


def test_the_right_password_gives_the_users_identity_and_a_wrong_one_is_refused() -> None:
    door = Door()
    right, wrong, unknown = door.connect("alice", b"right"), door.connect("alice", b"wrong"), door.connect("bob", b"x")
    assert right == wrong == unknown == [], "nobody is answered before the check"
    assert door.check_all() == 3, "an unknown user takes as long as a known one"
    assert (right, wrong, unknown) == ([Identity("c", "alice", is_listed=True)], [0x86], [0x86])
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
        assert door.connect("alice", b"right", f"c{number}") == [Identity(f"c{number}", "alice", is_listed=True)]
    assert door.check_all() == 0
    assert door.access.remembered == 100
    assert door.connect("alice", b"wrong") == [], "a wrong password is never remembered as right"
    door.check_all()
    door.now = 61.0
    assert door.connect("alice", b"right") == [], "checked again after a while"


def test_what_was_remembered_longest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.login.access.REMEMBERED_MAX", 3)
    door = Door()
    names = ["a", "b", "c", "d"]
    door.access.set_users(Users({name: RIGHT for name in names}))
    for name in names[:3]:
        door.connect(name, b"right")
        door.check_all()
    door.now = 61.0
    for name in ("a", "d"):  # a is checked again, and so is younger than b
        door.connect(name, b"right")
        door.check_all()
    door.now = 59.0
    known = [name for name in names if door.connect(name, b"right")]
    assert known == ["a", "c", "d"]


def test_a_changed_or_removed_user_is_not_remembered() -> None:
    for users in ({}, {"alice": cheap_hash(b"new")}):
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


def test_who_floods_from_one_address_neither_takes_anothers_place_nor_goes_before_it() -> None:
    door = Door(waiting_max=5)
    guesses = [door.connect("alice", b"%d" % number) for number in range(20)]
    right = door.connect("alice", b"right", address="10.0.0.2")
    assert ([] in guesses, right) == (True, [])
    checks = [door.access.take(), door.access.take()]
    assert [check.peer.address for check in checks if check is not None] == ["10.0.0.1", "10.0.0.2"]
    assert (guesses.count([]), guesses.count([0x89]), door.access.busy) == (4, 16, 16)


def test_a_check_that_ended_in_an_error_lets_nobody_in_and_leaves_nothing_remembered() -> None:
    door = Door()
    answers = door.connect("alice", b"right")
    check = door.access.take()
    assert check is not None
    door.access.left_unchecked(check)
    assert (answers, door.access.unchecked, door.access.refused) == ([0x88], 1, 0)
    assert door.connect("alice", b"right") == [], "it is checked the next time"


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
    assert gateway.broker.bodies() == [b"mine"]
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
    assert gateway.broker.messages() == []


@pytest.mark.parametrize("delay_s", [0, 5])
def test_a_will_whose_client_may_no_longer_publish_it_is_not_published(delay_s: int) -> None:
    gateway, door = gateway_with(RULES)
    properties = Properties(will_delay_interval=delay_s)
    asked = {"clean_start": False, "properties": Properties(session_expiry_interval=100)}
    for client_id in ("d1", "d2"):
        will = Will(f"devices/{client_id}/w", client_id.encode(), properties=properties)
        come(gateway, door, client_id, will=will, **asked).got_one(Connack)
    door.access.set_acl(parse_acl("allow user alice publish devices/d2/#"))
    for device in gateway.connections.admitted(2):
        device.drop()
    gateway.pass_time(10)
    assert gateway.broker.bodies() == [b"d2"]


@pytest.mark.parametrize(("rules", "published"), [(RULES, [b"gone"]), ("allow anonymous publish #", [])])
def test_the_will_of_a_dead_gateways_client_is_judged_by_who_it_was(rules: str, published: list[bytes]) -> None:
    one, door = gateway_with(RULES)
    other = Gateway(door.access, beside=one, name="other")
    for gateway in (one, other):
        gateway.pass_time(1)
    come(one, door, will=Will("devices/d1/w", b"gone")).got_one(Connack)
    door.access.set_acl(parse_acl(rules))
    other.pass_time(40)  # the first one has no rounds any more
    assert other.broker.bodies() == published


def test_a_retained_message_is_sent_only_while_its_publisher_may_publish_it() -> None:
    gateway, door = gateway_with(RULES)
    for client_id in ("d1", "d2"):
        client = come(gateway, door, client_id, will=Will(f"devices/{client_id}/w", b"gone", 0, retain=True))
        client.publish(f"devices/{client_id}/x", client_id.encode(), 1, packet_id=1, retain=True)
        client.cut()
    gateway.produce("devices/d1/native", b"native", qos=1, retain=True)
    everything = "allow all subscribe #\n"
    for rules, sent in (
        ("allow user alice publish devices/%c/#", {"d1/x", "d1/w", "d2/x", "d2/w", "d1/native"}),
        ("allow user alice publish devices/d2/#", {"d2/x", "d2/w", "d1/native"}),
        ("allow anonymous publish #\nallow user bob publish #", {"d1/native"}),
    ):
        door.access.set_acl(parse_acl(everything + rules))
        client = come(gateway, door, "reader")
        client.got_one(Connack)
        client.subscribe("devices/#", qos=1)
        names = {packet.topic.removeprefix("devices/") for packet in client.got() if isinstance(packet, Publish)}
        assert names == sent
        client.cut()


def test_what_an_anonymous_client_retained_is_judged_as_anonymous() -> None:
    access = Access("everyone", 1, 0.0, b"key", lambda: None, lambda: 0.0)
    access.set_acl(parse_acl("allow all all #"))
    gateway = Gateway(access)
    gateway.connect("c").publish("t", b"x", retain=True)
    for rules, sent in (("allow all subscribe #\nallow anonymous publish t", [b"x"]), ("allow all subscribe #", [])):
        access.set_acl(parse_acl(rules))
        client = gateway.connect("reader")
        client.subscribe("t")
        assert client.payloads() == sent


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


def token(**claims: object) -> bytes:
    return jwt.encode({"sub": "alice", "exp": 1060} | claims, SECRET, "HS256").encode()


def with_tokens(anonymous: str = "nobody", *, has_users: bool = True) -> Door:
    """A door to which tokens are passwords, at second 1000 of the wall clock."""
    door = Door(anonymous)
    door.access.set_tokens(TokenKeys(SECRET, TokenRules(leeway_s=0)), lambda: 1_000_000)
    door.access._has_users = has_users
    return door


def test_a_token_is_a_password_of_the_user_in_it_until_it_ends() -> None:
    door = with_tokens()
    for user in (None, "", "alice"):
        assert door.connect(user, token()) == [Identity("c", "alice", 60.0)]
    assert door.connect("mallory", token()) == [0x86], "the name beside it must be the same"
    assert door.connect("alice", token(exp=999)) == [0x86]
    assert door.connect("alice", token()[:-4] + b"AAAA") == [0x86], "and is not tried as a password"
    assert (door.access.tokens, door.access.refused, door.access.checked) == (3, 3, 0)


def test_certificate_token_password_and_nobody_are_tried_in_this_order() -> None:
    door = with_tokens("everyone")
    peer, answers = Peer("10.0.0.1", "device-7", "secure"), list[Identity | int]()
    door.access.connect(Credentials("c", None, token(), peer), answers.append)
    assert answers.pop().user_name == "device-7"  # type: ignore[union-attr]
    door.access.connect(Credentials("c", "alice", token(), peer), answers.append)
    assert answers == [Identity("c", "alice", 60.0)]
    right = door.connect("alice", b"right")
    door.check_all()
    assert right == [Identity("c", "alice", is_listed=True)]
    assert door.connect(None, None) == [Identity("c", "")]


def test_where_only_tokens_are_passwords_any_other_password_is_wrong_and_not_anonymous() -> None:
    for has_users, password in ((False, b"right"), (False, b"eyJ.x.y"), (False, b""), (True, b"eyJ.x.y")):
        door = with_tokens("everyone", has_users=has_users)
        assert door.connect("alice", password) == [0x86]
        cause = "token_malformed" if password.count(b".") == 2 else "not_a_token"
        assert door.access.attempts.refused[cause] == 1


def logged_in_with(door: Door, gateway: Gateway, level: int, **asked: object) -> Client:
    client = gateway.open(level)
    client.send(Connect("d1", user_name="alice", password=token(), level=level, **asked))  # type: ignore[arg-type]
    assert client.got_one(Connack).reason_code == 0
    return client


def test_a_connection_ends_when_the_token_does_and_its_will_is_published() -> None:
    for level, farewell in ((5, 0x87), (4, None)):
        door = with_tokens()
        gateway = Gateway(door.access)
        door.now = gateway.clock.now_s
        client = logged_in_with(door, gateway, level, will=Will("w", b"gone"))
        gateway.pass_time(59)
        assert not client.is_closed
        assert gateway.broker.messages() == []
        gateway.pass_time(2)
        assert client.is_closed
        got = client.got()
        assert [packet.reason_code for packet in got if isinstance(packet, Disconnect)] == [farewell][: level - 4]
        assert gateway.broker.bodies() == [b"gone"]
        assert gateway.connections.timeouts.expired == 1


def test_a_token_that_lasts_for_hours_ends_on_time_and_who_left_before_is_forgotten() -> None:
    door = with_tokens()
    gateway = Gateway(door.access)
    door.now = gateway.clock.now_s
    client = gateway.open(5)
    client.send(Connect("d1", password=token(exp=1000 + 600), level=5))
    client.got_one(Connack)
    gone = gateway.open(5)
    gone.send(Connect("d2", password=token(exp=1000 + 100_000), level=5))
    gone.got_one(Connack)
    gone.send(Disconnect())
    gateway.pass_time(598)
    assert not client.is_closed
    assert len(gateway.connections.timeouts._expiring) == 1
    gateway.pass_time(4)
    assert client.is_closed


def test_a_token_shows_itself_in_no_log() -> None:
    assert token().decode() not in repr(Credentials("c", None, token(), Peer("10.0.0.1")))


def test_the_causes_of_refusals_are_told_apart_for_the_operator_and_never_for_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = with_tokens()
    codes = set()
    with caplog.at_level("INFO"):
        for user, password in (
            ("alice", b"hush-hush"),
            ("hush-hush", b"hush-hush"),
            ("alice", b"hush-hush" * 10_000),
            ("alice", token(exp=1)),
            ("hush", token()),
            (None, token()[:-4] + b"AAAA"),
        ):
            answer = door.connect(user, password)
            door.check_all()
            codes.update(answer)
        door.connect(None, None)
    assert codes == {0x86}
    refused = {cause: count for cause, count in door.access.attempts.refused.items() if count}
    assert refused == {
        "wrong_password": 2,
        "unknown_user": 1,
        "token_expired": 1,
        "token_other_user": 1,
        "token_bad_signature": 1,
        "no_credentials": 1,
    }
    assert len(caplog.records) == 7
    assert caplog.messages[3:5] == [
        "login refused: token_expired (it ended 999 s ago); user 'alice', client id 'c', from 10.0.0.1 at tcp",
        "login refused: token_other_user; user 'alice', client id 'c', from 10.0.0.1 at tcp",
    ]
    assert "hush" not in caplog.text
    assert token(exp=1).decode()[:20] not in caplog.text


def limited(per_min_max: int, waiting_max: int = 10) -> Door:
    door = Door(waiting_max=waiting_max)
    door.access.attempts = Attempts(per_min_max, lambda limit: 0x9F, lambda: door.now)
    return door


def test_a_guesser_is_turned_away_whatever_it_guesses_and_those_who_are_known_come_in() -> None:
    door = limited(3)
    door.connect("alice", b"right")
    door.check_all()
    for number in range(3):
        answer = door.connect("alice", b"%d" % number)
        door.check_all()
        assert answer == [0x86]
    assert door.connect("alice", b"4") == [0x9F]
    assert door.connect("nobody", b"4") == [0x9F]
    assert door.connect("alice", b"right") == [Identity("c", "alice", is_listed=True)], "remembered"
    assert door.access.begin("SCRAM-SHA-256", "c", Peer("10.0.0.1"), is_again=False) == 0x9F
    assert not isinstance(door.access.begin("SCRAM-SHA-256", "c", Peer("10.0.0.1"), is_again=True), int)
    assert not isinstance(door.access.begin("SCRAM-SHA-256", "c", Peer("10.0.0.2"), is_again=False), int)
    assert door.check_all() == 0, "nothing is checked for who is turned away"
    door.now = 20.0
    assert door.connect("alice", b"5") == [], "one more in a third of a minute"


def test_passwords_that_wait_count_for_the_limit_of_failed_logins() -> None:
    door = limited(3, waiting_max=100)
    wrong = [door.connect("alice", b"%d" % number) for number in range(50)]
    other = door.connect("alice", b"right", address="10.0.0.2")
    assert door.check_all() == 4, "three of the guesser and one of another address"
    assert (wrong, other) == ([[0x86]] * 3 + [[0x9F]] * 47, [Identity("c", "alice", is_listed=True)])


def test_two_passwords_that_are_checked_at_the_same_time_both_count() -> None:
    door = limited(1)
    door.connect("alice", b"1")
    door.connect("alice", b"2")
    checks = [check for check in (door.access.take(), door.access.take()) if check is not None]
    assert [door.access.may_check(check) for check in checks] == [True, False]


def test_a_herd_with_right_passwords_behind_one_address_is_let_in_whatever_the_limit() -> None:
    door = limited(3, waiting_max=100)
    door.access.set_users(Users({f"u{number}": RIGHT for number in range(20)}))
    answers = [door.connect(f"u{number}", b"right") for number in range(20)]
    assert door.check_all() == 20
    assert [Identity("c", f"u{number}", is_listed=True) for number in range(20)] == [one for [one] in answers]


def test_a_check_that_ended_in_an_error_is_no_failed_login() -> None:
    door = limited(1)
    for _ in range(3):
        door.connect("alice", b"right")
        check = door.access.take()
        assert check is not None
        assert door.access.may_check(check)
        door.access.left_unchecked(check)


def test_a_listener_may_let_in_clients_without_credentials_where_the_others_do_not() -> None:
    access = Access("nobody", 1, 0.0, b"key", lambda: None, lambda: 0.0, anonymous_at={"open": "everyone"})
    answers: list[Identity | Reason] = []
    for listener in ("tcp", "open"):
        access.connect(Credentials("c", None, None, Peer("10.0.0.1", None, listener)), answers.append)
    assert answers == [0x87, Identity("c", "")]
