from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.members import Groups, allocate
from penstock.errors import Fenced, GroupNotFound


def groups(**queues: int) -> Groups:
    return Groups(lambda topic: queues.get(topic, 0), 100)


def held(some: Groups, group: str = "g") -> dict[str, str]:
    return {one.member: " ".join(one.queues) for one in some.members(group)[1]}


def dealt(members: dict[str, set[str]], turn: int = 0, **queues: int) -> dict[str, str]:
    return {name: " ".join(some) for name, some in allocate(members, queues, turn).items()}


@pytest.mark.parametrize(
    ("queues", "members", "runs"),
    [(8, 3, [3, 3, 2]), (2, 3, [1, 1, 0]), (4, 1, [4]), (0, 2, [0, 0]), (4, 4, [1, 1, 1, 1]), (5, 2, [3, 2])],
)
def test_queues_of_one_topic_are_dealt_out_as_rocketmq_deals_them(queues: int, members: int, runs: list[int]) -> None:
    some = allocate({f"m{n}": {"t"} for n in range(members)}, {"t": queues})
    assert [len(run) for run in some.values()] == runs
    assert [queue for run in some.values() for queue in run] == [f"t:{number}" for number in range(queues)]


def test_topics_with_one_queue_each_go_to_different_members() -> None:
    members = {name: {"t", "u", "v", "w"} for name in "abc"}
    assert dealt(members, t=1, u=1, v=1, w=1) == {"a": "t:0 w:0", "b": "u:0", "c": "v:0"}


def test_each_broker_favours_another_member() -> None:
    favoured = []
    for broker in ("broker-a", "broker-b", "broker-c"):
        some = Groups(lambda topic: 1, 0, broker)
        for member in "xyz":
            some.join("g", member, ("t",), 10.0, 0.0)
        favoured += [member for member, queues in held(some).items() if queues]
    assert sorted(favoured) == ["x", "y", "z"]


def test_a_topic_that_one_member_alone_reads_counts_before_those_that_all_read() -> None:
    assert dealt({"a": {"t", "u"}, "b": {"t"}}, t=4, u=2) == {"a": "t:0 u:0 u:1", "b": "t:1 t:2 t:3"}


@given(
    st.lists(st.text(min_size=1), min_size=1, max_size=10, unique=True),
    st.dictionaries(st.sampled_from("tuvwxyz"), st.integers(0, 40), min_size=1),
    st.integers(0, 1 << 40),
)
def test_each_queue_has_exactly_one_holder_and_no_member_has_two_more_than_another_over_all_topics(
    names: list[str], queues: dict[str, int], turn: int
) -> None:
    some = allocate({name: set(queues) for name in names}, queues, turn)
    all_held = [queue for run in some.values() for queue in run]
    assert sorted(all_held) == sorted(f"{topic}:{number}" for topic, count in queues.items() for number in range(count))
    assert max(map(len, some.values())) - min(map(len, some.values())) <= 1


@given(
    st.dictionaries(st.text(min_size=1), st.sets(st.sampled_from("tuvw")), min_size=1, max_size=8),
    st.fixed_dictionaries(dict.fromkeys("tuvw", st.integers(0, 9))),
)
def test_members_hold_only_queues_of_their_topics_and_those_with_the_same_topics_equally_many(
    members: dict[str, set[str]], queues: dict[str, int]
) -> None:
    some = allocate(members, queues)
    for one, topics in members.items():
        assert {queue.partition(":")[0] for queue in some[one]} <= topics
        for other in members:
            if members[other] == topics:
                assert abs(len(some[one]) - len(some[other])) <= 1


def test_the_life_of_a_group() -> None:
    some = groups(t=4, u=1)
    assert some.join("g", "b", ("t",), 10.0, 0.0).generation == 101
    assert held(some) == {"b": "t:0 t:1 t:2 t:3"}
    assert some.join("g", "a", ("t", "u"), 10.0, 1.0).generation == 102
    assert held(some) == {"a": "t:0 t:1 u:0", "b": "t:2 t:3"}
    assert some.join("g", "a", ("t", "u"), 10.0, 2.0).generation == 102, "nothing has changed"
    assert some.join("g", "a", ("u",), 10.0, 3.0).generation == 103
    assert held(some) == {"a": "u:0", "b": "t:0 t:1 t:2 t:3"}
    some.leave("g", "b")
    assert held(some) == {"a": "u:0"}
    some.leave("g", "a")
    with pytest.raises(GroupNotFound):
        some.members("g")


def test_a_member_that_falls_silent_loses_its_queues_to_the_others() -> None:
    some = groups(t=2)
    some.join("g", "a", ("t",), 10.0, 0.0)
    some.join("g", "b", ("t",), 10.0, 0.0)
    some.touch("g", "a", 9.0)
    some.expire(9.9)
    assert held(some) == {"a": "t:0", "b": "t:1"}
    some.expire(10.0)
    assert held(some) == {"a": "t:0 t:1"}
    some.expire(18.9)
    assert held(some) == {"a": "t:0 t:1"}
    some.expire(19.0)
    assert some.names == []


def test_a_member_that_joins_with_a_shorter_session_is_dropped_in_time() -> None:
    some = groups(t=1)
    some.join("g", "a", ("t",), 100.0, 0.0)
    some.expire(1.0)
    some.join("g", "b", ("t",), 2.0, 1.0)
    some.expire(3.0)
    assert held(some) == {"a": "t:0"}


def test_only_the_holder_commits_and_only_in_the_generation_of_the_day() -> None:
    some = groups(t=2)
    first = some.join("g", "a", ("t",), 10.0, 0.0).generation
    some.check_commit("g", "a", first, ["t:0", "t:1"])
    second = some.join("g", "b", ("t",), 10.0, 0.0).generation
    for member, generation, queue in [("a", first, "t:0"), ("a", second, "t:1"), ("c", second, "t:0"), ("", 0, "t:0")]:
        with pytest.raises(Fenced):
            some.check_commit("g", member, generation, [queue])
    some.check_commit("g", "a", second, ["t:0"])


def test_a_tool_may_set_the_offsets_of_a_group_without_members() -> None:
    groups(t=1).check_commit("g", "", 0, ["t:0"])


def test_a_topic_that_comes_later_is_dealt_out_when_it_comes() -> None:
    queues = {"t": 0, "other": 1}
    some = Groups(lambda topic: queues[topic], 0)
    some.join("g", "a", ("t",), 10.0, 0.0)
    some.join("h", "a", ("other",), 10.0, 0.0)
    some.take_changed()
    queues["t"] = 2
    some.queues_changed("t")
    assert held(some) == {"a": "t:0 t:1"}
    assert some.take_changed() == ["g"], "whoever does not read the topic is left alone"


def test_a_dropped_member_is_told_to_join_again() -> None:
    some = groups(t=1)
    with pytest.raises(Fenced, match="join again"):
        some.touch("g", "a", 0.0)
