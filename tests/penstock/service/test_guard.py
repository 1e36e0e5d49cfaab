"""The guard of a connection: who has not logged in has little room and time, and rules count at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from access_table import RULES, Taker, guarded

from penstock.access.acl import parse_acl
from penstock.access.authority import Authority, Known
from penstock.access.passwords import Users
from penstock.access.policy import SCRAM, TOKEN, Identity
from penstock.errors import InvalidRequest, NotAuthorized
from penstock.protocol.link import OnResult
from penstock.protocol.logins import CLUSTER_KEY
from penstock.protocol.logins import TOKEN as BY_TOKEN
from penstock.protocol.message import Message, encode_message
from penstock.protocol.requests.messages import Appended, AppendRuns, PlacedRun, Pull, Refused
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.servers import Login, LoginStep, Ping
from penstock.protocol.requests.topics import DeleteTopic
from penstock.protocol.runs import checksum_of, decode_runs, encode_runs, run_of
from penstock.protocol.wire import FRAME_BYTES_MAX, FrameReader
from penstock.service.audit import Audit
from penstock.service.frame_connection import Peer
from penstock.service.guard import GOODBYE_S, LOGIN_S, STRANGER_BYTES_MAX, Guard, GuardedSession

PULL = Pull("orders-1:0", 0)


class Port:
    """A guarded port with one connection."""

    def __init__(self, rules: str = RULES, asks: bool = True) -> None:
        self.authority = Authority(lambda: bytes(32), lambda: 0, bytes(32))
        if asks:
            self.authority.set_users(Users({"consume-one": Users({}).decoy("x")}))
            self.authority.set_acl(parse_acl(rules))
        audit = Audit(lambda: 0, lambda: 0.0)
        self.guard = Guard(self.authority, audit, lambda: 0.0, lambda: 0.0, failures_per_min_max=3)
        self.limits: list[float] = []
        self.taker = Taker()
        self.frames = FrameReader()
        self.session = self.connect()

    def connect(self) -> GuardedSession:
        return self.guard.watch(self.taker, Peer(1, "192.0.2.1:5"), self.frames, self.limits.append)

    def ask(self, request: Request) -> Result:
        results: list[Result] = []
        self.session.submit(request, results.append)
        assert len(results) == 1
        return results[0]


def test_an_open_port_lets_all_through() -> None:
    port = Port(asks=False)
    port.ask(DeleteTopic("t"))
    assert len(port.taker.taken) == 1
    assert (port.limits, port.guard.strangers, port.frames.bytes_max) == ([], 0, FRAME_BYTES_MAX)


def test_who_has_not_logged_in_has_little_room_and_time_until_it_has() -> None:
    port = Port()
    assert (port.limits, port.frames.bytes_max, port.guard.strangers) == ([LOGIN_S], STRANGER_BYTES_MAX, 1)
    assert isinstance(port.ask(PULL), NotAuthorized)
    port.ask(Ping())
    assert port.frames.bytes_max == STRANGER_BYTES_MAX
    port.session.become(Known(Identity("consume-one", SCRAM)))
    port.ask(PULL)
    assert port.taker.taken == [Ping(), PULL]
    assert (port.limits[-1], port.frames.bytes_max, port.guard.strangers) == (float("inf"), FRAME_BYTES_MAX, 0)
    port.session.close()
    assert port.guard.strangers == 0


def test_a_token_that_ends_ends_its_connection() -> None:
    port = Port()
    port.session.become(Known(Identity("consume-one", TOKEN, until_s=30.0)))
    assert port.limits[-1] == 30.0
    port.session.become(Known(Identity("consume-one", SCRAM)))  # which does not end
    assert port.limits[-1] == float("inf")


def test_a_failed_login_ends_the_connection_and_says_no_cause() -> None:
    port = Port()
    wrong = port.ask(Login("SCRAM-SHA-256", b"no exchange"))
    other = port.ask(Login("SCRAM-SHA-256", b"n,,n=ada,r=x"))  # it is over
    assert isinstance(wrong, NotAuthorized)
    assert str(wrong) == str(other)
    assert port.limits[-1] == GOODBYE_S
    assert isinstance(port.ask(PULL), NotAuthorized)
    assert [(one.act, one.allowed, one.why) for one in port.guard.audit.trail.take()[:1]] == [
        ("Login", False, "malformed")
    ]


@pytest.mark.parametrize("mechanism", ["PLAIN", BY_TOKEN])
def test_a_mechanism_that_does_not_count_is_named_with_what_would_mend_it(mechanism: str) -> None:
    refused = Port().ask(Login(mechanism, b"x"))
    assert isinstance(refused, NotAuthorized)
    assert mechanism in refused.message
    assert "password_file" in refused.hint


def test_an_address_that_fails_too_often_is_not_heard_for_a_while() -> None:
    port = Port()
    for _ in range(3):
        port.session = port.connect()
        assert isinstance(port.ask(Login("SCRAM-SHA-256", b"no")), NotAuthorized)
    port.session = port.connect()
    assert isinstance(port.ask(Login("SCRAM-SHA-256", b"n,,n=ada,r=x")), NotAuthorized)
    assert port.guard.audit.trail.take()[-1].why == "too_many"


def test_a_login_has_few_steps() -> None:
    port = Port()
    assert isinstance(port.ask(Login(CLUSTER_KEY, bytes(32) + b"x")), LoginStep)
    assert isinstance(port.ask(Login("SCRAM-SHA-256", b"n,,n=a,r=b")), NotAuthorized)  # no other one in between


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        (lambda authority: authority.set_acl(parse_acl("")), False),
        (lambda authority: authority.set_users(Users({})), False),
        (lambda authority: authority.set_acl(parse_acl("allow all consume *")), True),
    ],
)
def test_changed_users_and_rules_count_for_who_is_connected(change: Callable[[Authority], None], allowed: bool) -> None:
    port = Port()
    port.session.become(Known(Identity("consume-one", SCRAM)))
    port.ask(PULL)
    change(port.authority)
    port.ask(PULL)
    assert len(port.taker.taken) == 1 + allowed


def test_administering_is_noted_each_time_and_reading_is_not() -> None:
    port = Port(RULES + "\nallow user consume-one admin spare-*")
    port.session.become(Known(Identity("consume-one", SCRAM)))
    for _ in range(2):
        port.ask(PULL)
        port.ask(DeleteTopic("spare-1"))
    _, noted = port.guard.audit.trail.take()
    assert noted[1:7] == ("consume-one", "scram", "192.0.2.1:5", "DeleteTopic", "spare-1", True)
    assert noted.times == 2


class Store(Taker):
    """Stores runs one behind the other, as a broker tells it."""

    def submit(self, request: Request, on_result: OnResult) -> None:
        assert isinstance(request, AppendRuns)
        assert checksum_of(bytes(request.body)) == request.checksum
        assert sum(len(run.bodies) for run in decode_runs(bytes(request.body))) == request.count
        at = sum(one.count for one in self.taken if isinstance(one, AppendRuns))
        self.taken.append(request)
        bad = (Refused(0, 40, "bad"),) if request.count > 2 else ()
        on_result(Appended("disk", (), bad, (PlacedRun(len(bad), 0, at, at),)))


def batch(*topics: str) -> AppendRuns:
    body = encode_runs([run_of(encode_message(Message(topic, b"x"))) for topic in topics])
    return AppendRuns(len(topics), checksum_of(body), body, detail=True)


def sent(request: AppendRuns) -> Result:
    session, _ = guarded(Identity("produce-one", SCRAM), taker=Store())
    results: list[Result] = []
    session.submit(request, results.append)
    assert len(results) == 1
    return results[0]


def test_of_a_batch_what_is_allowed_is_stored_and_the_rest_is_told_message_by_message() -> None:
    mine, other = "orders-1", "payments"
    told = sent(batch(mine, mine, other, mine, other))
    assert isinstance(told, Appended)
    assert [(one.at, one.code) for one in told.refused] == [(2, NotAuthorized.code), (4, NotAuthorized.code)]
    assert [(one.at, one.offset) for one in told.runs] == [(0, 0), (3, 2)]
    told = sent(batch(other, mine, mine, mine))
    assert isinstance(told, Appended)
    assert [(one.at, one.code) for one in told.refused] == [(0, NotAuthorized.code), (1, 40)]
    assert [one.at for one in told.runs] == [2]


def test_a_batch_of_which_nothing_is_allowed_is_refused_whole() -> None:
    refused = sent(batch("payments", "payments"))
    assert isinstance(refused, NotAuthorized)
    assert "'payments'" in refused.message


@pytest.mark.parametrize("body", [b"\0", bytes(24), b"\xff" * 60, batch("orders-1").body[:-1]])
def test_runs_that_cannot_be_read_reach_nobody(body: bytes) -> None:
    assert isinstance(sent(AppendRuns(1, checksum_of(body), body)), InvalidRequest)


def test_a_batch_that_lies_about_its_size_is_not_cut() -> None:
    lie = batch("orders-1", "payments")
    assert isinstance(sent(AppendRuns(3, lie.checksum, lie.body)), InvalidRequest)
    assert isinstance(sent(AppendRuns(2, 1, lie.body)), InvalidRequest)
