"""What only gateways know of sessions, asked through their home."""

from __future__ import annotations

from broker.sessions.questions import ASKS_MAX, CLIENTS_MAX
from penstock.errors import Busy, InvalidRequest, TopicNotFound
from penstock.protocol.requests.sessions import (
    HOME_TOPIC,
    RELEASED,
    AskSubscriptions,
    OpenSession,
    SaveSessions,
    SeenPacket,
    SessionCalls,
    SessionQuestion,
    SessionSave,
    SessionTerms,
    Subscriptions,
    TellSubscriptions,
    WatchSessions,
)
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig


def home(**sessions: str) -> Rig:
    """A home with a connected session of each client, by its gateway."""
    rig = Rig()
    rig.ask(CreateTopic(HOME_TOPIC, 1))
    for client, gateway in sessions.items():
        rig.ask(OpenSession(gateway, client, True, 0, b""))
    return rig


def question(*clients: str, wants_terms: bool = False, wait_s: float = 5.0) -> AskSubscriptions:
    return AskSubscriptions(clients, wants_terms, wait_s)


def test_the_gateways_of_clients_are_asked_and_their_answers_are_told() -> None:
    rig = home(a="g1", b="g1", c="g2")
    watches = {gateway: rig.submit(WatchSessions(gateway, 30.0)) for gateway in ("g1", "g2")}
    asked = rig.submit(question("a", "c", "nobody"))
    rig.sync()
    assert watches["g1"] == [SessionCalls((), (SessionQuestion("a", False),))]
    assert watches["g2"] == [SessionCalls((), (SessionQuestion("c", False),))]
    rig.ask(TellSubscriptions("g1", (SessionTerms("a", 3, False),)))
    assert asked == []
    rig.ask(TellSubscriptions("g2", (SessionTerms("c", 0, False),)))
    rig.sync()
    assert asked == [Subscriptions((SessionTerms("a", 3, False), SessionTerms("c", 0, False)))]


def test_a_gateway_that_is_not_waiting_hears_the_question_when_it_is_back() -> None:
    rig = home(a="g1")
    asked = rig.submit(question("a", wants_terms=True))
    assert rig.ask(WatchSessions("g1", 30.0)) == SessionCalls((), (SessionQuestion("a", True),))
    rig.ask(TellSubscriptions("g1", (SessionTerms("a", 1, False),)))  # it answers somebody else
    assert asked == []
    told = SessionTerms("a", 1, True, b"terms")
    rig.ask(TellSubscriptions("g1", (told,)))
    rig.sync()
    assert asked == [Subscriptions((told,))]


def test_only_the_gateway_that_has_a_client_is_believed_and_only_about_what_was_asked() -> None:
    rig = home(a="g1", b="g1")
    asked = rig.submit(question("a"))
    rig.ask(TellSubscriptions("g2", (SessionTerms("a", 9, False),)))
    rig.ask(TellSubscriptions("g1", (SessionTerms("b", 9, False),)))
    assert asked == []
    rig.ask(TellSubscriptions("g1", (SessionTerms("a", 1, False), SessionTerms("a", 2, False))))
    rig.sync()
    assert asked == [Subscriptions((SessionTerms("a", 1, False),))]


def test_a_question_ends_at_its_deadline_with_what_was_told_and_is_forgotten() -> None:
    rig = home(a="g1", b="g2")
    asked = rig.submit(question("a", "b"))
    rig.ask(TellSubscriptions("g1", (SessionTerms("a", 1, False),)))
    rig.clock.now += 6
    rig.dispatch.tick()
    rig.sync()
    assert asked == [Subscriptions((SessionTerms("a", 1, False),))]
    assert rig.ask(WatchSessions("g2", 0.0)) == SessionCalls(())


def test_clients_that_are_away_or_unknown_are_not_waited_for() -> None:
    rig = home()
    opened = rig.ask(OpenSession("g1", "away", False, 60, b""))
    rig.ask(SaveSessions("g1", (SessionSave("away", opened.epoch, RELEASED, 60),)))
    assert rig.ask(question("away", "nobody")) == Subscriptions(())
    assert rig.ask(WatchSessions("g1", 0.0)) == SessionCalls(())


def test_questions_are_bounded() -> None:
    rig = home(a="g1")
    for many in (question(*["x"] * (CLIENTS_MAX + 1)), question("a", wait_s=31.0), question("a", wait_s=-1.0)):
        assert rig.ask(many).code == InvalidRequest.code
    waiting = [rig.submit(question("a")) for _ in range(ASKS_MAX)]
    assert rig.ask(question("a")).code == Busy.code
    rig.ask(TellSubscriptions("g1", (SessionTerms("a", 1, False),)))
    rig.sync()
    assert [len(one) for one in waiting] == [1] * ASKS_MAX
    assert rig.ask(question("a", wait_s=0.0)) == Subscriptions(())


def test_only_the_home_of_sessions_is_asked() -> None:
    assert Rig().ask(question("a")).code == TopicNotFound.code


def test_packets_of_a_client_reach_who_asked_for_these_and_no_other_question() -> None:
    rig = home(a="g1")
    listed, first, second = (
        rig.submit(AskSubscriptions(("a",), False, 5.0, watch_after=after)) for after in (-1, 0, 7)
    )
    asked = rig.ask(WatchSessions("g1", 30.0)).asked
    assert [one.watch_after for one in asked] == [-1, 0, 7]
    told = SessionTerms("a", 1, False, watch_after=7, packets=(SeenPacket(8, 5, True, "PUBLISH", name="x"),))
    rig.ask(TellSubscriptions("g1", (told,)))
    rig.sync()
    assert (listed, first, second) == ([], [], [Subscriptions((told,))])
    several = AskSubscriptions(("a", "b"), False, 5.0, watch_after=0)
    assert isinstance(rig.ask(several), InvalidRequest)
