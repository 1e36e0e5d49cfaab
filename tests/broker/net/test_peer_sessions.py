"""The port for replicas: who has no key is not heard, and answers find their requests."""

from __future__ import annotations

from broker.net.peer_sessions import WAITING_MAX, PeerSession
from penstock.errors import NotAuthorized, Unavailable
from penstock.protocol.link import OnResult
from penstock.protocol.requests.replicas import (
    AskVote,
    FetchLog,
    ReplicaHello,
    ReplicaWelcome,
    TakeEntries,
    Taken,
    Vote,
)
from penstock.protocol.requests.request import Request, Result
from penstock.service.cluster_secret import is_replica_proof, replica_proof

KEY = b"k" * 32
NONCE = b"n" * 32
HELLO = ReplicaHello("", "g", "b", "u2", "host-b:1", "host-b:2", (), NONCE)


class Called:
    """A node that notes what it is asked."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.gone = 0
        self.refuses = False

    def welcome(self, hello: ReplicaHello) -> ReplicaWelcome:
        return ReplicaWelcome("c", "a", "u1", "host-a:1", "host-a:2", ())

    def came(self, session: PeerSession) -> None:
        """Nothing to note."""

    def asked(self, session: PeerSession, request: Request, on_result: OnResult) -> None:
        if self.refuses:
            raise Unavailable("this node is starting")
        self.requests.append(request)

    def flush(self) -> None:
        """Nothing to note."""

    def left(self, session: PeerSession) -> None:
        self.gone += 1


def said(session: PeerSession, request: Request) -> Result:
    results: list[Result] = []
    session.submit(request, results.append)
    [result] = results
    return result


def greeted(host: Called) -> PeerSession:
    session = PeerSession(host, KEY)
    first = said(session, HELLO)
    assert isinstance(first, ReplicaWelcome)
    assert (first.cluster, first.clients) == ("", ""), "a stranger hears nothing"
    proof = replica_proof(KEY, True, (NONCE, first.nonce), "b", "u2")
    second = said(session, ReplicaHello(*tuple_of(HELLO), proof))
    assert isinstance(second, ReplicaWelcome)
    assert second.clients == "host-a:2"
    assert is_replica_proof(second.proof, KEY, False, (NONCE, first.nonce), "a", "u1")
    return session


def tuple_of(hello: ReplicaHello) -> tuple[str, str, str, str, str, str, tuple[str, ...], bytes]:
    one = hello
    return one.cluster, one.group, one.node, one.uuid, one.address, one.clients, one.namesrv, one.nonce


def test_both_sides_prove_that_they_have_the_key() -> None:
    host = Called()
    session = greeted(host)
    session.submit(FetchLog(0, 10), lambda result: None)
    assert host.requests == [FetchLog(0, 10)]
    session.close()
    assert host.gone == 1


def test_a_node_with_another_key_is_not_heard() -> None:
    host = Called()
    session = PeerSession(host, KEY)
    first = said(session, HELLO)
    assert isinstance(first, ReplicaWelcome)
    wrong = replica_proof(b"x" * 32, True, (NONCE, first.nonce), "b", "u2")
    assert isinstance(said(session, ReplicaHello(*tuple_of(HELLO), wrong)), NotAuthorized)
    other = replica_proof(KEY, True, (NONCE, first.nonce), "c", "u3")  # another node's proof
    assert isinstance(said(session, ReplicaHello(*tuple_of(HELLO), other)), NotAuthorized)
    assert isinstance(said(session, AskVote(9, "b", 1, 10, False)), NotAuthorized)
    assert not host.requests
    session.close()
    assert not host.gone


def test_answers_go_to_the_oldest_request_of_their_kind() -> None:
    session, results = greeted(Called()), list[tuple[str, Result]]()
    for name in ("first", "second"):
        session.submit(TakeEntries(1, "b", 0, 0, 0, 0, 0), lambda result, name=name: results.append((name, result)))  # type: ignore[misc]
    session.submit(AskVote(2, "b", 1, 10, True), lambda result: results.append(("vote", result)))
    session.answer(Taken(1, 5, 0))
    session.answer(Vote(2, True, True))
    assert results == [("first", Taken(1, 5, 0)), ("vote", Vote(2, True, True))]
    for _ in range(WAITING_MAX):
        session.submit(TakeEntries(1, "b", 0, 0, 0, 0, 0), lambda result: None)
    assert results[2][0] == "second"
    assert isinstance(results[2][1], Unavailable), "an election has overtaken it"


def test_a_request_that_is_refused_gets_no_other_answer() -> None:
    host = Called()
    session, results = greeted(host), list[tuple[str, Result]]()
    host.refuses = True
    session.submit(TakeEntries(1, "b", 0, 0, 0, 0, 0), lambda result: results.append(("refused", result)))
    host.refuses = False
    session.submit(TakeEntries(1, "b", 0, 0, 0, 0, 0), lambda result: results.append(("taken", result)))
    session.answer(Taken(1, 5, 0))
    [(first, error), second] = results
    assert (first, type(error)) == ("refused", Unavailable)
    assert second == ("taken", Taken(1, 5, 0))
