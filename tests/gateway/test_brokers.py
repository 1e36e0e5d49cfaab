"""Where the brokers are, as the name servers tell."""

from __future__ import annotations

import pytest
from linked_broker import LinkedBroker
from rig import HandClock

from gateway.brokers import ANSWER_S, Broker, Brokers
from penstock.errors import NoQuorum, NoRoute, NotLeader, PenstockError, Unavailable
from penstock.protocol.link import Link, OnResult
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, Route
from penstock.protocol.requests.topics import CreateTopic, DescribeTopic


class Silent:
    """A name server that is not there."""

    def submit(self, request: Request, on_result: OnResult) -> None:
        on_result(Unavailable("nobody there"))

    def flush(self) -> None:
        pass


class Places:
    """Links by address, each with what was asked there and has no answer."""

    def __init__(self) -> None:
        self.asked: dict[str, list[OnResult]] = {}

    def link(self, address: str) -> Link:
        return Place(self.asked.setdefault(address, []))

    def give_up(self, address: str) -> None:
        waiting = self.asked[address].copy()
        self.asked[address].clear()
        for on_result in waiting:
            on_result(Unavailable("given up"))


class Place:
    def __init__(self, asked: list[OnResult]) -> None:
        self._asked = asked

    def submit(self, request: Request, on_result: OnResult) -> None:
        self._asked.append(on_result)

    def flush(self) -> None:
        pass


class Cluster:
    def __init__(self, broker: LinkedBroker, *silent: str) -> None:
        self.broker = broker
        self.silent = silent

    def link(self, address: str) -> Link:
        return Silent() if address in self.silent else self.broker


class Told:
    """Name servers that give each the same answer to everything; a broker behind them."""

    def __init__(self, broker: LinkedBroker, answers: dict[str, Result]) -> None:
        self.broker = broker
        self.answers = answers

    def link(self, address: str) -> Link:
        answer = self.answers.get(address)
        return self.broker if answer is None else Same(answer)

    def give_up(self, address: str) -> None:
        """Nothing is on its way."""


class Same:
    """A link on which everything is answered alike."""

    def __init__(self, answer: Result) -> None:
        self.answer = answer

    def submit(self, request: Request, on_result: OnResult) -> None:
        on_result(self.answer)

    def flush(self) -> None:
        """Nothing was held back."""


def found_by(brokers: Brokers, topic: str) -> list[Broker] | PenstockError:
    answers: list[list[Broker] | PenstockError] = []
    brokers.find(topic, answers.append)
    brokers.flush()
    return answers[0]


def test_a_known_topic_is_found_without_making_it() -> None:
    broker = LinkedBroker(HandClock())
    broker.ask(CreateTopic("t", 1))
    found = found_by(Brokers(broker, ["ns:1"], lambda: None), "t")
    assert isinstance(found, list)
    assert [broker.address for broker in found] == ["broker:1"]
    assert broker.made(DescribeTopic) == []


def test_a_new_topic_is_made_at_a_live_broker() -> None:
    broker = LinkedBroker(HandClock())
    found = found_by(Brokers(broker, ["ns:1"], lambda: None), "t")
    assert isinstance(found, list)
    assert broker.made(DescribeTopic) == [DescribeTopic("t", create=True)]


def test_without_any_broker_there_is_no_route() -> None:
    broker = LinkedBroker(HandClock())
    broker.has_brokers = False
    assert isinstance(found_by(Brokers(broker, ["ns:1"], lambda: None), "t"), NoRoute)


@pytest.mark.parametrize("answers", [["away"], ["away", "nobody"], ["nobody there", "away"]])
def test_a_topic_at_a_broker_that_is_away_is_not_made_anew(answers: list[str]) -> None:
    broker = LinkedBroker(HandClock())
    away = NoRoute("topic 't' is at broker a, which is away")
    told: dict[str, Result] = {"away": away, "nobody": Route(()), "nobody there": Unavailable("gone")}
    names = {f"ns:{at}": told[answer] for at, answer in enumerate(answers)}
    brokers = Brokers(Told(broker, names), list(names), lambda: None)
    assert found_by(brokers, "t") is away
    assert broker.made(DescribeTopic) == []


def test_the_next_name_server_is_asked_when_one_does_not_answer() -> None:
    brokers = Brokers(Cluster(LinkedBroker(HandClock()), "ns:1"), ["ns:1", "ns:2"], lambda: None)
    assert isinstance(found_by(brokers, "t"), list)


def test_when_none_answers_the_last_error_is_told() -> None:
    brokers = Brokers(Cluster(LinkedBroker(HandClock()), "ns:1", "ns:2"), ["ns:1", "ns:2"], lambda: None)
    assert isinstance(found_by(brokers, "t"), Unavailable)


def test_each_broker_is_announced_once_also_to_those_who_ask_late() -> None:
    broker = LinkedBroker(HandClock())
    brokers = Brokers(broker, ["ns:1"], lambda: None)
    early: list[Broker] = []
    late: list[Broker] = []
    brokers.on_new(early.append)
    for _ in range(2):
        brokers.refresh()
        brokers.flush()
    brokers.on_new(late.append)
    assert len(early) == 1
    assert early == late == brokers.known


def test_no_second_question_while_one_is_open() -> None:
    broker = LinkedBroker(HandClock())
    broker.holds_replies = True
    brokers = Brokers(broker, ["ns:1"], lambda: None)
    brokers.refresh()
    brokers.refresh()
    brokers.flush()
    assert len(broker.made(QueryRoute)) == 1


def test_what_is_submitted_calls_for_a_round_once() -> None:
    broker = LinkedBroker(HandClock())
    calls: list[int] = []
    brokers = Brokers(broker, ["ns:1"], lambda: calls.append(1))
    brokers.refresh()
    brokers.find("t", lambda found: None)
    assert calls == [1]


def learned(brokers: Brokers, **addresses: str) -> list[Broker]:
    return brokers._learn([BrokerRoute(name, address, 1) for name, address in addresses.items()])


def test_a_broker_that_comes_back_at_another_address_is_the_same_one_and_is_asked_there() -> None:
    places = Places()
    brokers = Brokers(places, [], lambda: None)
    announced: list[Broker] = []
    brokers.on_new(announced.append)
    [broker] = learned(brokers, b="h:1")
    results: list[Result] = []
    broker.submit(DescribeTopic("t"), results.append)
    assert learned(brokers, b="h:2") == [broker] == announced == brokers.known
    assert [type(result) for result in results] == [Unavailable], "what was out at the old address ends"
    broker.submit(DescribeTopic("t"), results.append)
    assert {address: len(asked) for address, asked in places.asked.items()} == {"h:1": 0, "h:2": 1}


def with_copies(places: Places) -> tuple[Brokers, Broker]:
    brokers = Brokers(places, ["ns:1"], lambda: None)
    [broker] = brokers._learn([BrokerRoute("b", "h:1", 1, epoch=3, readers=("h:2",))])
    return brokers, broker


def test_a_node_that_does_not_lead_is_left_for_the_leader_when_nothing_is_out_there() -> None:
    places = Places()
    _, broker = with_copies(places)
    results: list[Result] = []
    for _ in range(2):
        broker.submit(DescribeTopic("t"), results.append)
    first, second = places.asked.pop("h:1")
    places.asked["h:1"] = []
    first(NotLeader("it follows", hint="h:2"))
    assert broker.address == "h:1", "the other one's refusal is still to come"
    second(NotLeader("it follows", hint="h:2"))
    assert broker.address == "h:2"
    assert [type(result) for result in results] == [NotLeader, NotLeader]
    broker.submit(DescribeTopic("t"), results.append)
    assert len(places.asked["h:2"]) == 1


def test_a_leader_that_cannot_be_reached_has_the_name_servers_asked_at_the_next_tick() -> None:
    places = Places()
    brokers, broker = with_copies(places)
    brokers.tick(1.0)
    assert not places.asked["ns:1"]
    broker.submit(DescribeTopic("t"), lambda _: None)
    places.asked["h:1"].pop()(NoQuorum("1 of 3"))
    brokers.tick(1.5)
    assert not places.asked["ns:1"], "it leads, and waits for the others"
    broker.submit(DescribeTopic("t"), lambda _: None)
    places.asked["h:1"].pop()(Unavailable("gone"))
    brokers.tick(2.0)
    [answer] = places.asked["ns:1"]
    answer(Route((BrokerRoute("b", "h:2", 1, False, epoch=3, readers=("h:2", "h:3")),)))
    assert broker.address == "h:1", "there is no leader to go to"
    brokers.refresh()
    places.asked["ns:1"][-1](Route((BrokerRoute("b", "h:3", 1, epoch=4, readers=("h:2",)),)))
    assert broker.address == "h:3"


def test_what_is_asked_as_the_old_address_is_given_up_goes_to_the_new_one() -> None:
    places = Places()
    brokers = Brokers(places, [], lambda: None)
    [broker] = learned(brokers, b="h:1")
    results: list[Result] = []
    broker.submit(DescribeTopic("t"), lambda _: broker.submit(DescribeTopic("t"), results.append))
    learned(brokers, b="h:2")
    assert not results
    assert {address: len(asked) for address, asked in places.asked.items()} == {"h:1": 0, "h:2": 1}


def test_nothing_that_is_asked_of_one_broker_reaches_another_that_has_its_address_now() -> None:
    places = Places()
    brokers = Brokers(places, [], lambda: None)
    [one] = learned(brokers, a="h:1")
    [other] = learned(brokers, b="h:1")
    assert one is not other
    results: list[Result] = []
    one.submit(DescribeTopic("t"), results.append)
    assert [type(result) for result in results] == [Unavailable]
    learned(brokers, a="h:1", b="h:2")
    one.submit(DescribeTopic("t"), results.append)
    assert {address: len(asked) for address, asked in places.asked.items()} == {"h:1": 1, "h:2": 0}


def test_brokers_that_change_places_are_told_apart() -> None:
    places = Places()
    brokers = Brokers(places, [], lambda: None)
    one, other = learned(brokers, a="h:1", b="h:2")
    assert learned(brokers, a="h:2", b="h:1") == [one, other]
    one.submit(DescribeTopic("t"), lambda _: None)
    assert {address: len(asked) for address, asked in places.asked.items()} == {"h:1": 0, "h:2": 1}


def test_keys_keep_their_brokers_wherever_these_listen() -> None:
    brokers = Brokers(Places(), [], lambda: None)
    before = learned(brokers, a="h:1", b="h:2", c="h:3")
    assert learned(brokers, c="h:0", b="h:2", a="h:9") == before


def test_a_name_server_that_hangs_is_given_up_and_asked_behind_the_others() -> None:
    """What waits for it, a topic for example, is asked of the next one."""
    places = Places()
    brokers = Brokers(places, ["hangs:1", "answers:1"], lambda: None)
    found: list[object] = []
    brokers.refresh()
    brokers.find("t", found.append)
    for now in (100.0, 100.0 + ANSWER_S - 0.1):
        brokers.tick(now)
        assert [len(places.asked[place]) for place in ("hangs:1", "answers:1")] == [2, 0]
    brokers.tick(100.0 + ANSWER_S)
    assert [len(places.asked[place]) for place in ("hangs:1", "answers:1")] == [0, 2]
    for on_result in places.asked["answers:1"]:
        on_result(Route((BrokerRoute("b", "broker:1", 1),)))
    places.asked["answers:1"].clear()
    assert [broker.name for broker in brokers.known] == ["b"]
    assert [[broker.name for broker in one] for one in found if isinstance(one, list)] == [["b"]]
    assert brokers.unnamed == ""
    brokers.refresh()
    assert [len(places.asked[place]) for place in ("hangs:1", "answers:1")] == [0, 1]


def test_the_only_name_server_that_hangs_is_told_of_and_asked_again() -> None:
    places = Places()
    brokers = Brokers(places, ["hangs:1"], lambda: None)
    for start in (0.0, 100.0):
        brokers.refresh()
        brokers.tick(start)
        brokers.tick(start + ANSWER_S)
        assert brokers.unnamed == "given up"
        assert places.asked["hangs:1"] == []
    brokers.refresh()
    places.asked["hangs:1"].pop()(Route(()))
    assert brokers.unnamed == ""


def test_each_name_server_has_its_time_to_answer() -> None:
    places = Places()
    brokers = Brokers(places, ["hangs:1", "slow:1"], lambda: None)
    brokers.refresh()
    brokers.tick(0.0)
    brokers.tick(ANSWER_S)
    brokers.tick(ANSWER_S + 0.5)
    brokers.tick(2 * ANSWER_S)
    assert len(places.asked["slow:1"]) == 1
