"""How queues are dealt: one holder each, evenly where a strategy is even, and with few moves where it is to be."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.allocation import Claim, Place, allocate
from penstock.protocol.requests.groups import STRATEGIES

TOPICS = "tuvw"
counts = st.fixed_dictionaries(dict.fromkeys(TOPICS, st.integers(0, 9)))
subscriptions = st.frozensets(st.sampled_from(TOPICS))
rooms = st.sampled_from(["", "north", "south"])
wishes = st.frozensets(st.builds("{}:{}".format, st.sampled_from(TOPICS), st.integers(0, 9)), max_size=6)
claims = st.dictionaries(st.text(min_size=1), st.builds(Claim, subscriptions, rooms, wishes), max_size=8)
places = st.builds(Place, st.text(max_size=5), rooms)


def claim(topics: Iterable[str], room: str = "", queues: Iterable[str] = ()) -> Claim:
    return Claim(frozenset(topics), room, frozenset(queues))


def dealt(strategy: str, members: dict[str, Claim], place: Place = Place(), **queues: int) -> dict[str, str]:  # noqa: B008
    return {name: " ".join(some) for name, some in allocate(strategy, members, queues, place).items()}


def allowed(strategy: str, one: Claim, everyone: Iterable[Claim], queue: str, place: Place) -> bool:
    """Whether a member may hold a queue, said apart from the code under test."""
    topic = queue.partition(":")[0]
    if topic not in one.topics:
        return False
    if strategy == "configured":
        return queue in one.queues
    if strategy == "room":
        return one.room == place.room
    if strategy == "nearest-room" and one.room != place.room:
        return not any(topic in other.topics and other.room == place.room for other in everyone)
    return True


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(members=claims, queues=counts, place=places)
def test_each_queue_has_exactly_one_holder_that_may_hold_it_if_there_is_one(
    strategy: str, members: dict[str, Claim], queues: dict[str, int], place: Place
) -> None:
    some = allocate(strategy, members, queues, place)
    assert some.keys() == members.keys()
    for topic, count in queues.items():
        for queue in (f"{topic}:{number}" for number in range(count)):
            holders = [name for name, held in some.items() if queue in held]
            able = [name for name in members if allowed(strategy, members[name], members.values(), queue, place)]
            assert len(holders) == bool(able)
            assert set(holders) <= set(able)
    assert sum(map(len, some.values())) == len({queue for held in some.values() for queue in held})


@pytest.mark.parametrize("strategy", ["average", "circle", "room", "nearest-room"])
@given(members=claims, queues=counts, place=places)
def test_members_with_the_same_claim_are_at_most_one_queue_apart_over_all_topics(
    strategy: str, members: dict[str, Claim], queues: dict[str, int], place: Place
) -> None:
    some = allocate(strategy, members, queues, place)
    for one in members:
        for other in members:
            if (members[one].topics, members[one].room) == (members[other].topics, members[other].room):
                assert abs(len(some[one]) - len(some[other])) <= 1


@given(names=st.lists(st.text(min_size=1), min_size=1, max_size=8, unique=True), queues=counts, place=places)
def test_whoever_comes_to_a_ring_takes_queues_and_moves_none_between_others(
    names: list[str], queues: dict[str, int], place: Place
) -> None:
    members = {name: claim(TOPICS) for name in names}
    before = allocate("hash", members, queues, place)
    newcomer = "a newcomer".join(names) + "!"
    after = allocate("hash", members | {newcomer: claim(TOPICS)}, queues, place)
    for name in names:
        assert set(after[name]) <= set(before[name])


def test_a_ring_gives_each_of_a_few_members_a_fair_part_of_many_queues() -> None:
    some = allocate("hash", {name: claim("t") for name in "abcd"}, {"t": 1000}, Place())
    assert all(100 < len(held) < 500 for held in some.values())


@pytest.mark.parametrize(
    ("queues", "members", "runs"),
    [(8, 3, [3, 3, 2]), (2, 3, [1, 1, 0]), (4, 1, [4]), (0, 2, [0, 0]), (4, 4, [1, 1, 1, 1]), (5, 2, [3, 2])],
)
def test_average_deals_one_topic_as_rocketmq_does(queues: int, members: int, runs: list[int]) -> None:
    some = allocate("average", {f"m{n}": claim("t") for n in range(members)}, {"t": queues}, Place())
    assert [len(run) for run in some.values()] == runs
    assert [queue for run in some.values() for queue in run] == [f"t:{number}" for number in range(queues)]


def test_circle_deals_one_topic_as_rocketmq_does() -> None:
    members = {name: claim("t") for name in "abc"}
    assert dealt("circle", members, t=8) == {"a": "t:0 t:3 t:6", "b": "t:1 t:4 t:7", "c": "t:2 t:5"}


@pytest.mark.parametrize("strategy", ["average", "circle"])
def test_topics_with_one_queue_each_go_to_different_members(strategy: str) -> None:
    members = {name: claim(TOPICS) for name in "abc"}
    assert dealt(strategy, members, t=1, u=1, v=1, w=1) == {"a": "t:0 w:0", "b": "u:0", "c": "v:0"}


@pytest.mark.parametrize("strategy", ["average", "circle", "room", "nearest-room"])
def test_each_broker_favours_another_member(strategy: str) -> None:
    members = {name: claim("t") for name in "xyz"}
    places = [Place(f"broker-{letter}") for letter in "abc"]
    favoured = [name for place in places for name, held in dealt(strategy, members, place, t=1).items() if held]
    assert sorted(favoured) == ["x", "y", "z"]


def test_a_topic_that_one_member_alone_reads_counts_before_those_that_all_read() -> None:
    members = {"a": claim("tu"), "b": claim("t")}
    assert dealt("average", members, t=4, u=2) == {"a": "t:0 u:0 u:1", "b": "t:1 t:2 t:3"}


def test_of_several_that_ask_for_a_queue_the_first_by_name_holds_it_and_the_rest_is_held_by_nobody() -> None:
    members = {"b": claim("t", queues=["t:0", "t:1"]), "a": claim("t", queues=["t:1", "u:0", "t:9"])}
    assert dealt("configured", members, t=3, u=1) == {"a": "t:1", "b": "t:0"}


def test_retries_are_dealt_evenly_where_queues_are_asked_for_by_name() -> None:
    members = {name: Claim(frozenset(["t", "%RETRY%g"]), queues=frozenset([f"t:{at}"])) for at, name in enumerate("ab")}
    held = allocate("configured", members, {"t": 3, "%RETRY%g": 1}, Place("x"))
    assert sorted([*held["a"], *held["b"]]) == ["%RETRY%g:0", "t:0", "t:1"]


def test_the_nearest_room_is_the_own_one_and_else_any() -> None:
    members = {"a": claim("t", "north"), "b": claim("t", "south")}
    assert dealt("nearest-room", members, Place("x", "north"), t=2) == {"a": "t:0 t:1", "b": ""}
    assert dealt("nearest-room", members, Place("x", "east"), t=2) == {"a": "t:0", "b": "t:1"}
    assert dealt("room", members, Place("x", "east"), t=2) == {"a": "", "b": ""}
