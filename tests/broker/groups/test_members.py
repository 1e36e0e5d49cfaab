from __future__ import annotations

import pytest

from broker.groups.allocation import Claim, Place
from broker.groups.members import Groups, Terms, group_waker
from broker.kernel.theme import Wakers
from penstock.errors import Fenced, GroupNotFound, InvalidRequest

T = Claim(frozenset({"t"}))


def groups(**queues: int) -> Groups:
    return Groups(lambda topic: queues.get(topic, 0), 100, Place(), {})


def claim(*topics: str) -> Claim:
    return Claim(frozenset(topics))


def held(some: Groups, group: str = "g") -> dict[str, str]:
    return {one.member: " ".join(one.queues) for one in some.members(group)[1]}


def test_each_broker_favours_another_member() -> None:
    favoured = []
    for broker in ("broker-a", "broker-b", "broker-c"):
        some = Groups(lambda topic: 1, 0, Place(broker), {})
        for member in "xyz":
            some.join("g", member, claim("t"), 10.0, 0.0)
        favoured += [member for member, queues in held(some).items() if queues]
    assert sorted(favoured) == ["x", "y", "z"]


def test_a_member_with_another_filter_or_strategy_is_refused_naming_both() -> None:
    some = groups(t=2)
    some.join("g", "a", T, 10.0, 0.0, Terms("x > 1"))
    with pytest.raises(InvalidRequest, match=r"group g has the filter 'x > 1', this member no filter .*force=True"):
        some.join("g", "b", T, 10.0, 0.0)
    with pytest.raises(InvalidRequest, match="the filter 'x > 1', this member the filter 'x > 2'"):
        some.join("g", "b", T, 10.0, 0.0, Terms("x > 2"))
    with pytest.raises(InvalidRequest, match="deals its queues by average, this member asks for circle"):
        some.join("g", "b", T, 10.0, 0.0, Terms("x > 1", "circle"))
    assert held(some) == {"a": "t:0 t:1"}


def test_a_member_that_forces_other_terms_changes_them_for_all() -> None:
    some = groups(t=2)
    first = some.join("g", "a", T, 10.0, 0.0, Terms("x > 1")).generation
    second = some.join("g", "b", T, 10.0, 0.0, Terms("x > 2"), force=True).generation
    assert second > first
    assert some.terms_of("g") == Terms("x > 2")
    with pytest.raises(InvalidRequest, match="'x > 2'"):
        some.join("g", "a", T, 10.0, 0.0, Terms("x > 1"))


def test_a_member_that_is_alone_changes_the_terms_as_it_likes() -> None:
    some = groups(t=2)
    first = some.join("g", "a", T, 10.0, 0.0, Terms("x > 1")).generation
    assert some.join("g", "a", T, 10.0, 0.0).generation > first
    assert some.terms_of("g") == Terms()
    some.leave("g", "a")
    assert some.terms_of("g") is None


def test_the_life_of_a_group() -> None:
    some = groups(t=4, u=1)
    assert some.join("g", "b", claim("t"), 10.0, 0.0).generation == 101
    assert held(some) == {"b": "t:0 t:1 t:2 t:3"}
    assert some.join("g", "a", claim("t", "u"), 10.0, 1.0).generation == 102
    assert held(some) == {"a": "t:0 t:1 u:0", "b": "t:2 t:3"}
    assert some.join("g", "a", claim("t", "u"), 10.0, 2.0).generation == 102, "nothing has changed"
    assert some.join("g", "a", claim("u"), 10.0, 3.0).generation == 103
    assert held(some) == {"a": "u:0", "b": "t:0 t:1 t:2 t:3"}
    some.leave("g", "b")
    assert held(some) == {"a": "u:0"}
    some.leave("g", "a")
    with pytest.raises(GroupNotFound):
        some.members("g")


def test_a_member_that_falls_silent_loses_its_queues_to_the_others() -> None:
    some = groups(t=2)
    some.join("g", "a", claim("t"), 10.0, 0.0)
    some.join("g", "b", claim("t"), 10.0, 0.0)
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
    some.join("g", "a", claim("t"), 100.0, 0.0)
    some.expire(1.0)
    some.join("g", "b", claim("t"), 2.0, 1.0)
    some.expire(3.0)
    assert held(some) == {"a": "t:0"}


def test_only_the_holder_commits_and_only_in_the_generation_of_the_day() -> None:
    some = groups(t=2)
    first = some.join("g", "a", claim("t"), 10.0, 0.0).generation
    some.check_commit("g", "a", first, ["t:0", "t:1"])
    second = some.join("g", "b", claim("t"), 10.0, 0.0).generation
    for member, generation, queue in [("a", first, "t:0"), ("a", second, "t:1"), ("c", second, "t:0"), ("", 0, "t:0")]:
        with pytest.raises(Fenced):
            some.check_commit("g", member, generation, [queue])
    some.check_commit("g", "a", second, ["t:0"])


def test_a_tool_may_set_the_offsets_of_a_group_without_members() -> None:
    groups(t=1).check_commit("g", "", 0, ["t:0"])


def test_a_topic_that_comes_later_is_dealt_out_when_it_comes() -> None:
    queues = {"t": 0, "other": 1}
    wakers: Wakers = {}
    some = Groups(lambda topic: queues[topic], 0, Place(), wakers)
    some.join("g", "a", claim("t"), 10.0, 0.0)
    some.join("h", "a", claim("other"), 10.0, 0.0)
    wakers.clear()
    queues["t"] = 2
    some.queues_changed("t")
    assert held(some) == {"a": "t:0 t:1"}
    assert list(wakers) == [group_waker("g")], "whoever does not read the topic is left alone"


def test_a_dropped_member_is_told_to_join_again() -> None:
    some = groups(t=1)
    with pytest.raises(Fenced, match="join again"):
        some.touch("g", "a", 0.0)
