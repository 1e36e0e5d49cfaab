"""Topic targets store an event once, whatever is sent again, and again where a person means it."""

from __future__ import annotations

import pytest

from events.exact import ExactSends, Origin, RuleSender, producer_of, record_of, route_of
from penstock import Message
from penstock.blocking import Admin, Reader
from penstock.client.lasting_links import lasting_links
from penstock.client.sending import choose
from penstock.clock import RealClock
from penstock.errors import Busy, NoRoute
from penstock.protocol.requests.messages import Append
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.topics import CreateTopic
from penstock.service.topic_rate import TopicRate
from penstock.world import Rng
from tests.broker.broker_rig import Rig
from tests.events.bridge import Bridge


def test_a_broker_stores_each_number_of_a_rule_once_in_whatever_order_they_come() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    producer = producer_of("event/b/r", 5, 0, "broker", "b:0", "t")

    def send(*offsets: int) -> int:
        records = [record_of(Message("t", b"%d" % one, "k"), producer, one, 7) for one in offsets]
        rig.ask(Append(len(records), False, b"".join(records)))
        return rig.store.bounds("t:0").end

    assert send(5, 6) == 2
    assert send(6, 5, 90_000) == 3
    assert send(7, 5, 89_999, 6) == 5
    assert send(5, 6, 7, 89_999, 90_000) == 5


def test_a_producer_has_another_name_wherever_anything_is_another() -> None:
    told = ["event/b/r", 5, 0, "broker", "b:0", "t", "broker"]
    others = [[*told[:at], 9 if isinstance(told[at], int) else "x", *told[at + 1 :]] for at in range(len(told))]
    names = {producer_of(*one) for one in [told, *others, [*told, "second"]]}
    assert len(names) == len(told) + 2


@pytest.mark.parametrize("key", ["", "a", "b", "c", "d"])
def test_an_event_goes_to_the_broker_of_its_key_or_to_none(key: str) -> None:
    brokers = [BrokerRoute(name, f"{name}:1", 1) for name in "abc"]
    origin, message = Origin("from", "queue:0", 7), Message("t", b"", key)
    wanted = route_of(origin, message, brokers, brokers)
    assert wanted == choose(key or "from/queue:0", brokers, 0)
    assert route_of(origin, message, [wanted], brokers) == wanted
    with pytest.raises(NoRoute):
        route_of(origin, message, [one for one in brokers if one != wanted], brokers)


@pytest.mark.parametrize("key", ["", "a", "b", "c", "d"])
def test_an_event_goes_where_an_ordered_topic_has_its_key(key: str) -> None:
    live = [BrokerRoute(name, f"{name}:1", 1, place=place, places=2) for place, name in enumerate("ba")]
    whole = [BrokerRoute(name, "", 1) for name in "ab"]
    found = route_of(Origin("from", "queue:0", 7), Message("t", b"", key), live, whole)
    assert found == choose(key or "from/queue:0", live, 0)


def stored(bridge: Bridge, topic: str) -> list[str]:
    with Reader(topic, servers=bridge.addresses.namesrv, until_end=True) as reader:
        return [str(one.properties["CE_id"]) for batch in reader for one in batch]


@pytest.mark.endtoend
def test_a_topic_gets_each_event_once_and_again_after_a_reset(bridge: Bridge) -> None:
    bus = bridge.bus()
    target, place = f"/v1/buses/{bus}/targets/t", f"/v1/buses/{bus}/rules/r"
    bridge.done("PUT", target, {"kind": "topic", "topic": f"{bus}-copies"})
    bridge.done("PUT", place, {"target": "t", "start": "earliest"})
    ids = sorted(one["id"] for one in bridge.send(bus, *range(20)))
    bridge.until(place, lambda value: value["here"]["delivered"] == 20)
    assert sorted(stored(bridge, f"{bus}-copies")) == ids
    bridge.done("PUT", place, {"target": "t", "enabled": False})
    bridge.until(place, lambda value: value["here"]["trouble"] == "disabled")
    with Admin(bridge.addresses.namesrv) as admin:
        admin.reset_group(f"event/{bus}/r", bus, to="earliest")
    bridge.done("PUT", place, {"target": "t"})
    bridge.until(place, lambda value: value["here"]["delivered"] == 40)
    assert sorted(stored(bridge, f"{bus}-copies")) == sorted(ids * 2)


@pytest.mark.endtoend
async def test_the_events_of_a_rule_make_a_limited_number_of_topics(bridge: Bridge) -> None:
    servers, clock, rule = bridge.addresses.namesrv, RealClock(), RuleSender("event/b/r", 1)
    async with lasting_links(clock, Rng(1)) as links:
        exact = ExactSends(servers, links, clock, TopicRate(1, "rule_topics_per_min_max"))
        await exact.find_or_make("made-by-rule", rule)
        await exact.find_or_make("made-by-rule", rule)
        with pytest.raises(Busy, match=r"the rule event/b/r .* \(rule_topics_per_min_max\)"):
            await exact.find_or_make("made-by-rule-too", rule)
        await exact.find_or_make("made-by-another", RuleSender("event/b/other", 1))
