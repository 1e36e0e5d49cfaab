"""Leases, routes and what one broker can do to another."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from namesrv.registry import Registry
from penstock.errors import Busy, Fenced, InvalidRequest, InvalidTopic, NoRoute, PenstockError, TooLarge
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import (
    BrokerHeartbeat,
    BrokerRoute,
    HeartbeatReply,
    QueryRoute,
    QueryTopics,
    RegisterBroker,
    Route,
    TopicNames,
    TopicRoute,
    UnregisterBroker,
)
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from penstock.protocol.requests.topics import ListTopics

A, B = "10.0.0.1:10911", "10.0.0.2:10911"


def registration(
    broker: str = "a", address: str = A, *topics: str, version: int = 1, lease_s: float = 120
) -> RegisterBroker:
    return RegisterBroker(broker, address, version, lease_s, tuple(TopicRoute(topic, 4) for topic in topics))


def brokers_of(registry: Registry, topic: str, now: float = 0.0) -> list[str] | None:
    """Names of those who have it; ``None`` where it is, or may be, at one that is away."""
    route = registry.answer(QueryRoute(topic), now)
    if isinstance(route, NoRoute):
        return None
    assert isinstance(route, Route)
    return [broker.broker for broker in route.brokers]


def test_a_registered_broker_is_found_by_its_topics() -> None:
    registry = Registry()
    assert registry.answer(registration("b", B, "orders"), 0.0) == Done()
    assert registry.answer(registration("a", A, "orders", "telemetry"), 0.0) == Done()
    assert registry.answer(QueryRoute("orders"), 1.0) == Route((BrokerRoute("a", A, 4), BrokerRoute("b", B, 4)))
    assert registry.answer(QueryTopics(), 1.0) == TopicNames(("orders", "telemetry"))
    assert registry.answer(QueryRoute("other"), 1.0) == Route(())
    assert registry.answer(QueryRoute(""), 1.0) == Route((BrokerRoute("a", A, 0), BrokerRoute("b", B, 0)))


def test_figures_count_the_topics_of_users_and_not_those_that_gateways_keep_for_themselves() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders", *GATEWAYS_TOPICS), 0.0)
    assert registry.figures(1.0)["namesrv_topics"] == 1


def test_a_topic_that_may_not_be_written_is_told_so() -> None:
    registry = Registry()
    registry.answer(RegisterBroker("a", A, 1, 120, (TopicRoute("orders", 4, writable=False),)), 0.0)
    assert registry.answer(QueryRoute("orders"), 0.0) == Route((BrokerRoute("a", A, 4, False),))


def test_a_broker_is_gone_with_its_topics_when_its_lease_ends() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders"), 0.0)
    assert brokers_of(registry, "orders", 119.9) == ["a"]
    assert brokers_of(registry, "orders", 120.0) is None
    assert registry.answer(QueryTopics(), 120.0) == TopicNames((), absent=("orders",), away=("a",))
    assert len(registry) == 0


def test_expire_names_those_whose_leases_ended() -> None:
    registry = Registry()
    registry.answer(registration("a", A, lease_s=10), 0.0)
    registry.answer(registration("b", B, lease_s=20), 0.0)
    assert registry.expire(9.0) == []
    assert registry.expire(10.0) == ["a"]
    assert registry.expire(25.0) == ["b"]


def test_a_heartbeat_renews_the_lease() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders"), 0.0)
    assert registry.answer(BrokerHeartbeat("a", A, 1, 120), 100.0) == HeartbeatReply(True)
    assert brokers_of(registry, "orders", 219.0) == ["a"]
    assert brokers_of(registry, "orders", 220.0) is None


@pytest.mark.parametrize(
    "heartbeat", [BrokerHeartbeat("a", A, 2, 120), BrokerHeartbeat("b", A, 1, 120), BrokerHeartbeat("a", B, 1, 120)]
)
def test_a_heartbeat_that_does_not_fit_what_is_on_file_asks_for_a_registration(heartbeat: BrokerHeartbeat) -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders"), 0.0)
    assert registry.answer(heartbeat, 100.0) == HeartbeatReply(False)
    assert brokers_of(registry, "orders", 120.0) is None


def test_a_heartbeat_after_the_lease_asks_for_a_registration() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders"), 0.0)
    assert registry.answer(BrokerHeartbeat("a", A, 1, 120), 121.0) == HeartbeatReply(False)


def test_a_registration_replaces_what_the_broker_said_before() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders", "old", version=7), 0.0)
    registry.answer(registration("a", A, "orders", "new", version=3), 1.0)
    assert registry.answer(QueryTopics(), 1.0) == TopicNames(("new", "orders"))
    assert registry.answer(BrokerHeartbeat("a", A, 3, 120), 1.0) == HeartbeatReply(True)


def test_a_registration_with_the_same_topics_still_counts_its_version() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders", version=1), 0.0)
    registry.answer(registration("a", A, "orders", version=2), 1.0)
    assert registry.answer(BrokerHeartbeat("a", A, 2, 120), 1.0) == HeartbeatReply(True)
    assert registry.answer(BrokerHeartbeat("a", A, 1, 120), 1.0) == HeartbeatReply(False)


def more_topics(
    *topics: str, before: int, version: int, queues: int = 4, address: str = A, more: bool = False
) -> BrokerHeartbeat:
    offered = tuple(TopicRoute(topic, queues) for topic in topics)
    return BrokerHeartbeat("a", address, version, 120, offered, before, more)


def test_a_heartbeat_brings_topics_that_are_new_or_have_changed_since_the_version_on_file() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "t1", "t2"), 0.0)
    assert registry.answer(more_topics("t3", "t2", before=1, version=3, queues=8), 100.0) == HeartbeatReply(True)
    assert registry.answer(QueryRoute("t2"), 150.0) == Route((BrokerRoute("a", A, 8),)), "its lease is renewed too"
    assert registry.answer(QueryTopics(), 150.0) == TopicNames(("t1", "t2", "t3"))
    assert registry.answer(BrokerHeartbeat("a", A, 3, 120), 150.0) == HeartbeatReply(True)
    registry.answer(UnregisterBroker("a", A), 150.0)
    assert [brokers_of(registry, topic, 150.0) for topic in ("t1", "t3", "t4")] == [None, None, []]


@pytest.mark.parametrize(
    ("before", "address"), [(0, A), (2, A), (1, B)], ids=["an older version", "a newer version", "another address"]
)
def test_new_topics_since_another_version_than_the_one_on_file_ask_for_a_registration(
    before: int, address: str
) -> None:
    registry = Registry()
    registry.answer(registration("a", A, "t1"), 0.0)
    asked = more_topics("t2", before=before, version=3, address=address)
    assert registry.answer(asked, 0.0) == HeartbeatReply(False)
    assert registry.answer(QueryTopics(), 0.0) == TopicNames(("t1",))
    assert registry.answer(BrokerHeartbeat("a", A, 1, 120), 0.0) == HeartbeatReply(True)


@pytest.mark.parametrize(
    ("topics", "error"), [(("t2", "t3"), TooLarge), (("t1", "t1"), InvalidRequest), (("t!",), InvalidTopic)]
)
def test_new_topics_that_are_refused_change_nothing(topics: tuple[str, ...], error: type[PenstockError]) -> None:
    registry = Registry(topics_max=2)
    registry.answer(registration("a", A, "t1"), 0.0)
    assert isinstance(registry.answer(more_topics(*topics, before=1, version=2), 0.0), error)
    assert registry.answer(QueryTopics(), 0.0) == TopicNames(("t1",))
    assert registry.answer(more_topics("t1", "t2", before=1, version=2), 0.0) == HeartbeatReply(True)


def test_no_topic_is_called_unknown_while_a_broker_is_telling_what_it_has() -> None:
    registry = Registry()
    registry.answer(registration("b", B, "t2"), 0.0)
    whole = registration("a", A, "t1")
    assert registry.answer(RegisterBroker("a", A, 1, 120, whole.topics, (), True), 0.0) == Done()
    assert [brokers_of(registry, topic) for topic in ("t1", "t2", "t3")] == [["a"], ["b"], None]
    assert registry.answer(more_topics("t2", before=1, version=1, more=True), 0.0) == HeartbeatReply(True)
    assert [brokers_of(registry, topic) for topic in ("t2", "t3", "t4")] == [["a", "b"], None, None]
    assert registry.answer(more_topics("t3", before=1, version=1), 0.0) == HeartbeatReply(True)
    assert [brokers_of(registry, topic) for topic in ("t3", "t4")] == [["a"], []]


def test_another_broker_of_the_same_name_is_refused_while_the_lease_lives() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders"), 0.0)
    refused = registry.answer(registration("a", B, "orders"), 50.0)
    assert isinstance(refused, InvalidRequest)
    assert "registered at 10.0.0.1:10911 for another 70 s" in str(refused)
    assert registry.answer(QueryRoute("orders"), 50.0) == Route((BrokerRoute("a", A, 4),))
    assert registry.answer(registration("a", B, "orders"), 120.0) == Done()
    assert registry.answer(QueryRoute("orders"), 120.0) == Route((BrokerRoute("a", B, 4),))


def leader(address: str, epoch: int, *topics: str, log_id: str = "") -> RegisterBroker:
    return replace(registration("a", address, *topics), epoch=epoch, log_id=log_id)


def reader(address: str, epoch: int, *topics: str, committed: int = 0, log_id: str = "") -> RegisterBroker:
    return replace(leader(address, epoch, *topics, log_id=log_id), is_reader=True, committed=committed)


def test_the_leader_of_a_higher_epoch_takes_the_name_at_once_and_none_of_a_lower_one_gets_it_back() -> None:
    registry = Registry()
    assert registry.answer(leader(A, 3, "orders"), 0.0) == Done()
    assert registry.answer(leader(B, 4, "orders", "late"), 1.0) == Done()
    assert registry.answer(QueryRoute("orders"), 1.0) == Route((BrokerRoute("a", B, 4, epoch=4),))
    assert isinstance(registry.answer(leader(A, 3, "orders"), 2.0), Fenced)
    assert registry.answer(BrokerHeartbeat("a", A, 1, 120, epoch=3), 2.0) == HeartbeatReply(False)
    assert registry.answer(UnregisterBroker("a", A), 2.0) == Done()
    assert isinstance(registry.answer(leader(A, 4), 2.0), InvalidRequest), "two do not lead in one epoch"
    assert registry.answer(QueryRoute("late"), 2.0) == Route((BrokerRoute("a", B, 4, epoch=4),))
    registry.answer(UnregisterBroker("a", B), 3.0)
    assert isinstance(registry.answer(leader(A, 3, "orders"), 4.0), Fenced), "also where the later one is away"
    assert registry.answer(leader(A, 5, "orders"), 5.0) == Done()


def test_an_epoch_is_of_one_log() -> None:
    registry = Registry()
    registry.answer(leader(A, 3, "orders", log_id="one"), 0.0)
    refused = registry.answer(leader(B, 9, "orders", log_id="other"), 0.0)
    assert isinstance(refused, InvalidRequest)
    assert "registered at" in str(refused)
    assert registry.answer(leader(A, 1, "orders", log_id="other"), 1.0) == Done(), "its data was replaced"


def test_a_broker_without_copies_never_loses_its_name_to_an_epoch() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders"), 0.0)
    assert isinstance(registry.answer(leader(B, 9, "orders"), 0.0), InvalidRequest)


def test_routes_name_the_readers_beside_the_leader_and_without_one_in_its_place() -> None:
    registry = Registry()
    registry.answer(leader(A, 3, "orders", "new"), 0.0)
    registry.answer(reader(B, 3, "orders", committed=100), 0.0)
    assert registry.answer(QueryRoute("orders"), 0.0) == Route((BrokerRoute("a", A, 4, epoch=3, readers=(B,)),))
    assert registry.figures(0.0)["namesrv_readers"] == 1
    registry.answer(UnregisterBroker("a", A), 1.0)
    alone = BrokerRoute("a", B, 4, False, epoch=3, readers=(B,))
    assert registry.answer(QueryRoute("orders"), 1.0) == Route((alone,)), "it is not away: it can be read"
    assert registry.answer(QueryRoute(""), 1.0) == Route((alone._replace(queues=0),))
    assert registry.answer(QueryTopics(), 1.0) == TopicNames(("orders",), ("new",))
    assert brokers_of(registry, "new", 1.0) is None, "the reader lacks it, the leader had it"
    registry.answer(UnregisterBroker("a", B), 2.0)
    assert brokers_of(registry, "orders", 2.0) is None


def test_who_follows_leads_no_more_and_knows_of_a_later_leader() -> None:
    registry = Registry()
    registry.answer(leader(A, 3, "orders"), 0.0)
    assert isinstance(registry.answer(reader(A, 2, "orders"), 1.0), Fenced), "late word of before it led"
    assert registry.answer(reader(A, 4, "orders"), 1.0) == Done()
    assert registry.answer(QueryRoute("orders"), 1.0) == Route((BrokerRoute("a", A, 4, False, epoch=4, readers=(A,)),))
    registry.answer(leader(A, 5, "orders"), 2.0)
    assert registry.answer(QueryRoute("orders"), 2.0) == Route((BrokerRoute("a", A, 4, epoch=5),)), "it reads no more"
    registry.answer(reader(B, 6, "orders"), 3.0)
    assert registry.answer(QueryRoute("orders"), 3.0) == Route((BrokerRoute("a", B, 4, False, epoch=6, readers=(B,)),))
    assert isinstance(registry.answer(leader(A, 5, "orders"), 4.0), Fenced)


def test_a_reader_renews_its_lease_and_tells_how_much_it_has() -> None:
    registry = Registry()
    registry.answer(reader(A, 3, "orders", committed=10), 0.0)
    registry.answer(reader(B, 3, "orders", committed=20), 0.0)
    beat = BrokerHeartbeat("a", A, 1, 120, epoch=3, is_reader=True, committed=30)
    assert registry.answer(beat, 100.0) == HeartbeatReply(True)
    route = registry.answer(QueryRoute("orders"), 100.0)
    assert isinstance(route, Route)
    assert route.brokers[0].readers == (A, B)
    assert registry.answer(replace(beat, epoch=4), 101.0) == HeartbeatReply(False)
    assert registry.answer(replace(beat, address="10.0.0.3:1"), 101.0) == HeartbeatReply(False)
    assert registry.answer(QueryRoute("orders"), 150.0) == Route(
        (BrokerRoute("a", A, 4, False, epoch=3, readers=(A,)),)
    )


def test_a_reader_with_as_many_topics_as_it_may_have_tells_that_one_has_changed() -> None:
    registry = Registry(topics_max=2)
    registry.answer(reader(A, 3, "orders", "rides"), 0.0)
    beat = BrokerHeartbeat("a", A, 2, 120, (TopicRoute("orders", 8),), 1, epoch=3, is_reader=True)
    assert registry.answer(beat, 1.0) == HeartbeatReply(True)
    too_many = replace(beat, version=3, before=2, topics=(TopicRoute("new", 1),))
    assert isinstance(registry.answer(too_many, 2.0), TooLarge)


def test_a_new_name_at_an_address_takes_the_place_of_the_old_one() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders"), 0.0)
    assert registry.answer(registration("b", A, "orders"), 1.0) == Done()
    assert brokers_of(registry, "orders", 1.0) == ["b"]


def test_only_the_broker_itself_is_unregistered() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders"), 0.0)
    assert registry.answer(UnregisterBroker("a", B), 0.0) == Done()
    assert brokers_of(registry, "orders") == ["a"]
    assert registry.answer(UnregisterBroker("a", A), 0.0) == Done()
    assert brokers_of(registry, "orders") is None
    assert registry.answer(UnregisterBroker("a", A), 0.0) == Done()


def test_no_lease_is_longer_than_the_limit() -> None:
    registry = Registry(lease_s_max=100)
    registry.answer(registration("a", A, "orders", lease_s=1e9), 0.0)
    assert brokers_of(registry, "orders", 99.0) == ["a"]
    assert brokers_of(registry, "orders", 100.0) is None


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (registration("", A), InvalidRequest),
        (registration("a b", A), InvalidRequest),
        (registration("a", "nowhere"), InvalidRequest),
        (registration("a", A, lease_s=0), InvalidRequest),
        (replace(registration("a", A), peers=("b c",)), InvalidRequest),
        (registration("a", A, lease_s=math.nan), InvalidRequest),
        (registration("a", A, lease_s=math.inf), InvalidRequest),
        (registration("a", A, "orders", "orders"), InvalidRequest),
        (registration("a", A, "no/topic"), InvalidTopic),
        (registration("a", A, "%sys%offsets"), InvalidTopic),
        (RegisterBroker("a", A, 1, 120, (TopicRoute("orders", 0),)), InvalidRequest),
        (registration("a", A, "t1", "t2", "t3", "t4"), TooLarge),
        (BrokerHeartbeat("a", A, 1, math.nan), InvalidRequest),
    ],
)
def test_a_registration_that_makes_no_sense_is_refused_and_changes_nothing(
    request_: RegisterBroker, error: type[PenstockError]
) -> None:
    registry = Registry(topics_max=3)
    registry.answer(registration("a", A, "kept"), 0.0)
    assert isinstance(registry.answer(request_, 0.0), error)
    assert registry.answer(QueryTopics(), 0.0) == TopicNames(("kept",))
    assert brokers_of(registry, "kept") == ["a"]


def test_more_brokers_than_the_limit_are_refused_until_one_is_gone() -> None:
    registry = Registry(brokers_max=1)
    registry.answer(registration("a", A), 0.0)
    assert isinstance(registry.answer(registration("b", B), 0.0), Busy)
    assert registry.answer(registration("b", B), 120.0) == Done()


@pytest.mark.parametrize("leaves", [UnregisterBroker("a", A), None])
def test_a_topic_of_a_broker_that_is_away_is_never_called_unknown(leaves: UnregisterBroker | None) -> None:
    registry = Registry(away_s_max=1000)
    registry.answer(registration("a", A, "orders"), 0.0)
    registry.answer(registration("b", B, lease_s=600), 0.0)
    left_at = 1.0 if leaves is not None else 120.0
    if leaves is not None:
        registry.answer(leaves, left_at)
    told = registry.answer(QueryRoute("orders"), left_at)
    assert isinstance(told, NoRoute)
    assert "topic 'orders' is at broker a, which is away" in str(told)
    assert brokers_of(registry, "other", left_at) == []
    registry.answer(registration("a", A, "orders"), left_at + 10)
    assert brokers_of(registry, "orders", left_at + 10) == ["a"]
    registry.answer(UnregisterBroker("a", A), left_at + 10)
    assert brokers_of(registry, "orders", left_at + 1009.9) is None
    assert brokers_of(registry, "orders", left_at + 1010) == [], "it is given up"


def test_who_is_new_waits_for_the_brokers_that_others_have_seen() -> None:
    registry = Registry()
    assert brokers_of(registry, "orders") == []
    registry.answer(replace(registration("b", B, "own"), peers=("a",)), 0.0)
    assert brokers_of(registry, "own") == ["b"]
    told = registry.answer(QueryRoute("orders"), 1.0)
    assert isinstance(told, NoRoute)
    assert "a may have it, and did not come back yet" in str(told)
    registry.answer(replace(registration("b", B, "own"), peers=("a",)), 100.0)  # nobody is waited for longer by that
    assert brokers_of(registry, "orders", 119.0) is None
    assert brokers_of(registry, "orders", 120.0) == []
    registry = Registry()
    registry.answer(replace(registration("b", B), peers=("a",)), 0.0)
    registry.answer(replace(registration("a", A), peers=("b",)), 1.0)
    assert brokers_of(registry, "orders", 1.0) == [], "all are there"


@pytest.mark.parametrize("leaves", [UnregisterBroker("b", B), None])
def test_answers_name_the_brokers_that_are_away_and_have_some_of_it(leaves: UnregisterBroker | None) -> None:
    registry = Registry(away_s_max=1000)
    registry.answer(registration("a", A, "orders", "own", lease_s=600), 0.0)
    registry.answer(registration("b", B, "orders", "theirs"), 0.0)
    if leaves is not None:
        registry.answer(leaves, 120.0)
    assert registry.answer(QueryRoute("orders"), 120.0) == Route((BrokerRoute("a", A, 4),), away=("b",))
    assert registry.answer(QueryRoute("own"), 120.0) == Route((BrokerRoute("a", A, 4),))
    assert registry.answer(QueryRoute(""), 120.0) == Route((BrokerRoute("a", A, 0),), away=("b",))
    assert registry.answer(QueryTopics(), 120.0) == TopicNames(("orders", "own"), absent=("theirs",), away=("b",))
    registry.answer(registration("a", A, "orders", lease_s=600), 550.0)
    assert registry.answer(QueryRoute("orders"), 1119.0) == Route((BrokerRoute("a", A, 4),), away=("b",))
    assert registry.answer(QueryRoute("orders"), 1120.0) == Route((BrokerRoute("a", A, 4),)), "b is forgotten"


def test_a_broker_that_returns_is_not_away() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders"), 0.0)
    registry.answer(UnregisterBroker("a", A), 1.0)
    registry.answer(registration("a", B, "orders"), 2.0)
    assert registry.answer(QueryRoute("orders"), 2.0) == Route((BrokerRoute("a", B, 4),))
    assert registry.answer(QueryTopics(), 2.0) == TopicNames(("orders",))


def test_a_name_server_that_is_new_names_the_peers_that_it_never_heard_of_as_away() -> None:
    registry = Registry(away_s_max=1000)
    registry.answer(replace(registration("b", B, "orders", lease_s=600), peers=("a",)), 0.0)
    assert registry.answer(QueryRoute("orders"), 599.0) == Route((BrokerRoute("b", B, 4),), away=("a",))
    registry.answer(registration("b", B, "orders", lease_s=600), 599.0)
    assert registry.answer(QueryRoute("other"), 700.0) == Route((), away=("a",)), "it may be made by then"
    assert registry.answer(QueryRoute("orders"), 1000.0) == Route((BrokerRoute("b", B, 4),))


def test_a_broker_that_has_not_told_all_its_topics_may_have_any() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders"), 0.0)
    registry.answer(replace(registration("b", B, "x"), more=True), 0.0)
    assert registry.answer(QueryRoute("orders"), 0.0) == Route((BrokerRoute("a", A, 4),), away=("b",))
    assert registry.answer(QueryRoute("x"), 0.0) == Route((BrokerRoute("b", B, 4),))


def test_a_request_of_another_service_is_not_answered() -> None:
    assert Registry().answer(ListTopics(), 0.0) is None


class RegistryAgainstPlainTruth(RuleBasedStateMachine):
    """Any order of registrations, heartbeats, endings and time gives the same answers as a plain list of leases."""

    names = st.sampled_from(["a", "b", "c"])
    addresses = st.sampled_from([A, B])
    offered = st.lists(st.sampled_from(["t1", "t2", "t3"]), unique=True)

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry()
        self.now = 0.0
        self.truth: dict[str, tuple[str, int, list[str], float]] = {}
        self.away: dict[str, list[str]] = {}

    def live(self) -> dict[str, tuple[str, int, list[str], float]]:
        gone = {name: entry for name, entry in self.truth.items() if entry[3] <= self.now}
        self.away |= {name: entry[2] for name, entry in gone.items()}
        self.truth = {name: entry for name, entry in self.truth.items() if name not in gone}
        return dict(self.truth)

    @rule(step_s=st.sampled_from([1.0, 30.0, 200.0]))
    def time_passes(self, step_s: float) -> None:
        self.now += step_s

    @rule(
        name=names, address=addresses, version=st.integers(1, 3), topics=offered, lease_s=st.sampled_from([10.0, 120.0])
    )
    def registers(self, name: str, address: str, version: int, topics: list[str], lease_s: float) -> None:
        self.truth = self.live()
        result = self.registry.answer(registration(name, address, *topics, version=version, lease_s=lease_s), self.now)
        if name in self.truth and self.truth[name][0] != address:
            assert isinstance(result, InvalidRequest)
            return
        assert result == Done()
        self.truth = {n: entry for n, entry in self.truth.items() if entry[0] != address}
        self.truth[name] = (address, version, topics, self.now + lease_s)
        self.away.pop(name, None)

    @rule(name=names, address=addresses, version=st.integers(1, 3))
    def beats(self, name: str, address: str, version: int) -> None:
        known = self.live().get(name)
        fits = known is not None and known[:2] == (address, version)
        assert self.registry.answer(BrokerHeartbeat(name, address, version, 50.0), self.now) == HeartbeatReply(fits)
        if known is not None and fits:
            self.truth[name] = (*known[:3], self.now + 50.0)

    @rule(name=names, address=addresses, before=st.integers(1, 3), version=st.integers(1, 3), topics=offered)
    def brings_more(self, name: str, address: str, before: int, version: int, topics: list[str]) -> None:
        known = self.live().get(name)
        fits = known is not None and known[:2] == (address, before if topics else version)
        more = tuple(TopicRoute(topic, 4) for topic in topics)
        asked = BrokerHeartbeat(name, address, version, 50.0, more, before)
        assert self.registry.answer(asked, self.now) == HeartbeatReply(fits)
        if known is not None and fits:
            self.truth[name] = (address, version, sorted({*known[2], *topics}), self.now + 50.0)

    @rule(name=names, address=addresses)
    def unregisters(self, name: str, address: str) -> None:
        self.registry.answer(UnregisterBroker(name, address), self.now)
        self.live()
        if name in self.truth and self.truth[name][0] == address:
            self.away[name] = self.truth.pop(name)[2]

    @invariant()
    def answers_agree(self) -> None:
        live = self.live()
        assert brokers_of(self.registry, "", self.now) == sorted(live)
        for topic in ("t1", "t2", "t3"):
            holders = sorted(n for n, entry in live.items() if topic in entry[2])
            is_away = not holders and any(topic in topics for topics in self.away.values())
            assert brokers_of(self.registry, topic, self.now) == (None if is_away else holders)
        held = sorted({topic for entry in live.values() for topic in entry[2]})
        absent = sorted({topic for topics in self.away.values() for topic in topics} - set(held))
        names = TopicNames(tuple(held), tuple(absent), tuple(sorted(self.away)))
        assert self.registry.answer(QueryTopics(), self.now) == names


RegistryAgainstPlainTruth.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestRegistryAgainstPlainTruth = RegistryAgainstPlainTruth.TestCase


def test_a_heartbeat_tells_of_topics_that_are_gone() -> None:
    registry = Registry()
    registry.answer(registration("a", A, "orders", "old"), 0.0)
    registry.answer(registration("b", B, "old"), 0.0)
    gone = tuple(TopicRoute(topic, 0) for topic in ("orders", "old", "never"))
    assert registry.answer(BrokerHeartbeat("a", A, 4, 120, gone, 1), 1.0) == HeartbeatReply(True)
    assert (brokers_of(registry, "orders"), brokers_of(registry, "old")) == ([], ["b"])
    assert registry.answer(QueryTopics(), 1.0) == TopicNames(("old",))
    registry.answer(UnregisterBroker("a", A), 2.0)
    assert brokers_of(registry, "orders", 3.0) == [], "it is not at the broker that is away"


def test_no_topic_is_registered_as_gone() -> None:
    registry = Registry()
    refused = registry.answer(RegisterBroker("a", A, 1, 120, (TopicRoute("orders", 0),)), 0.0)
    assert isinstance(refused, InvalidRequest)
