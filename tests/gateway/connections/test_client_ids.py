"""Client ids: who may use which, and who takes one back."""

from __future__ import annotations

import pytest
from rig import Client, Gateway

from gateway.login.access import Access
from gateway.login.auth import ASSIGNED_ID, Credentials, Identity, OnIdentity
from gateway.mqtt.packets import Connack, Connect, Disconnect, Will
from gateway.mqtt.properties import Properties
from penstock.access.acl import parse_acl
from penstock.protocol.requests.sessions import ClosedSession, CloseSession

LASTING = Properties(session_expiry_interval=7 * 86_400)
RULES = "allow user alice client d1-*\nallow user root client *\nallow all all #"


class Believing(Access):
    """Takes each user for whom it says it is, and judges by rules."""

    def __init__(self, rules: str = "allow all all #") -> None:
        super().__init__("everyone", 1, 0, b"key", lambda: None, lambda: 0.0)
        self.set_acl(parse_acl(rules))

    def connect(self, shown: Credentials, done: OnIdentity) -> None:
        done(Identity(shown.client_id, shown.user_name or ""))


def come(
    gateway: Gateway, user: str | None, client_id: str = "d1-7", level: int = 5, will: Will | None = None
) -> Client:
    client = gateway.open(level)
    properties = LASTING if level == 5 else Properties()
    client.send(Connect(client_id, False, 60, user, None, will, properties, level=level))
    gateway.rounds.begin()
    gateway.round()
    return client


def code(client: Client) -> int:
    [connack] = [packet for packet in client.got() if isinstance(packet, Connack)]
    return connack.reason_code


@pytest.mark.parametrize(("level", "refusal"), [(5, 0x87), (4, 5)])
def test_a_client_id_that_no_rule_allows_is_refused_and_the_operator_told(level: int, refusal: int) -> None:
    access = Believing(RULES)
    gateway = Gateway(access)
    told = [code(come(gateway, user, "d1-7", level)) for user in ("mallory", None, "alice")]
    assert told == [refusal, refusal, 0]
    assert code(come(gateway, "alice", "d2-7", level)) == refusal
    assert access.attempts.refused["client_id"] == 3


def test_an_id_that_the_gateway_makes_needs_no_rule_also_where_its_client_comes_back_with_it() -> None:
    gateway = Gateway(Believing(RULES))
    first = come(gateway, "mallory", "")
    assigned = first.got_one(Connack).properties.assigned_client_identifier
    assert assigned is not None
    assert ASSIGNED_ID.fullmatch(assigned)
    first.cut()
    assert code(come(gateway, "mallory", assigned)) == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_the_owner_by_rule_takes_its_id_back_from_whoever_came_first(
    is_there: bool, caplog: pytest.LogCaptureFixture
) -> None:
    access = Believing()
    gateway = Gateway(access)
    squatter = come(gateway, "mallory", will=Will("w", b"his will", 1))
    squatter.got_one(Connack)
    squatter.subscribe("t")
    if not is_there:
        squatter.send(Disconnect())
    access.set_acl(parse_acl(RULES))
    owner = come(gateway, "alice")
    connack = owner.got_one(Connack)
    assert (connack.reason_code, connack.session_present) == (0, False)
    assert squatter.is_closed
    gateway.produce("t", b"x", qos=1)
    gateway.round()
    assert owner.got() == [], "nothing of the other session is left"
    assert gateway.broker.bodies()[:-1] == [b"his will"] * is_there
    assert code(come(gateway, "mallory")) == 0x87
    assert not owner.is_closed
    assert ("the session of user 'mallory' ends" in caplog.text) is not is_there


def test_the_owner_by_rule_takes_its_id_back_from_another_gateway() -> None:
    access = Believing()
    one = Gateway(access, name="one")
    other = Gateway(access, beside=one, name="other")
    for gateway in (one, other):
        gateway.pass_time(1)
    squatter = come(one, "mallory")
    assert code(squatter) == 0
    access.set_acl(parse_acl(RULES))
    owner = come(other, "alice")
    for _ in range(5):
        for gateway in (one, other):
            gateway.rounds.begin()
            gateway.round()
    assert (code(owner), squatter.is_closed) == (0, True)


@pytest.mark.parametrize("rules", ["allow all all #", "allow all client *\nallow all all #", "allow all client d1-*"])
def test_whom_no_rule_prefers_takes_nothing_from_another_user(rules: str) -> None:
    gateway = Gateway(Believing(rules))
    first = come(gateway, "mallory")
    assert code(first) == 0
    assert code(come(gateway, "alice")) == 0x87
    first.send(Disconnect())
    assert code(come(gateway, "alice")) == 0x87
    assert code(come(gateway, None)) == 0x87


def test_the_will_that_waits_of_a_session_that_an_operator_ends_is_published_at_once() -> None:
    gateway = Gateway(Believing())
    client = come(gateway, None, will=Will("w", b"gone", 1, properties=Properties(will_delay_interval=1000)))
    client.cut()
    answers: list[object] = []
    gateway.broker.submit(CloseSession("d1-7"), answers.append)
    gateway.pass_time(1)
    [answer] = answers
    assert isinstance(answer, ClosedSession)
    gateway.broker.submit(CloseSession("d1-7", answer.epoch, force=True), answers.append)
    gateway.pass_time(1)
    assert answers[1:] == [ClosedSession()]
    assert gateway.broker.bodies() == [b"gone"]
    assert gateway.broker.state.sessions.get("d1-7") is None


def test_an_operator_ends_the_session_of_a_connected_client() -> None:
    gateway = Gateway(Believing())
    client = come(gateway, None, will=Will("w", b"gone", 1, properties=Properties(will_delay_interval=1000)))
    client.got_one(Connack)
    answers: list[object] = []
    gateway.broker.submit(CloseSession("d1-7"), answers.append)
    gateway.pass_time(1)
    assert [one.reason_code for one in client.got() if isinstance(one, Disconnect)] == [0x98]
    assert client.is_closed
    assert gateway.broker.bodies() == [b"gone"], "the session is over, no delay"
    [answer] = answers
    assert isinstance(answer, ClosedSession)
    gateway.broker.submit(CloseSession("d1-7", answer.epoch, force=True), answers.append)
    gateway.round()
    assert answers[1:] == [ClosedSession()]
    again = come(gateway, None)
    assert not again.got_one(Connack).session_present
