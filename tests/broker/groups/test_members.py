"""Members, their queues and terms; and a model of many members at random."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.allocation import Claim, Place
from broker.groups.members import Group, Groups, Terms, member_waker
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
    with pytest.raises(InvalidRequest, match="group g is not ordered, this member is ordered with sessions of 9 s"):
        some.join("g", "b", T, 9.0, 0.0, Terms("x > 1", "average", 9.0))
    tries = "group g tries messages as usual, this member tries messages 3 times, with waits of 0.5, 10 s"
    with pytest.raises(InvalidRequest, match=tries):
        some.join("g", "b", T, 10.0, 0.0, Terms("x > 1", attempts=(3, 500, 10_000)))
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
    some.touch("g", "a", 0, 9.0)
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
    """A generation is over for a queue when it changes hands; one that stays goes on."""
    some = groups(t=2)
    first = some.join("g", "a", claim("t"), 10.0, 0.0).generation
    some.check_commit("g", "a", first, ["t:0", "t:1"])
    second = some.join("g", "b", claim("t"), 10.0, 0.0).generation
    some.check_commit("g", "a", first, ["t:0"])
    some.check_commit("g", "a", second, ["t:0"])
    some.check_commit("g", "b", second, ["t:1"])
    some.leave("g", "b")
    refused = [
        ("a", first - 1, "t:0"),
        ("a", first, "t:1"),
        ("a", second, "t:1"),
        ("a", second + 2, "t:0"),
        ("b", second, "t:1"),
        ("c", second, "t:0"),
        ("", 0, "t:0"),
    ]
    for member, generation, queue in refused:
        with pytest.raises(Fenced):
            some.check_commit("g", member, generation, [queue])
    some.check_commit("g", "a", second + 1, ["t:0", "t:1"])


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
    assert list(wakers) == [member_waker("g", "a")], "whoever does not read the topic is left alone"


def test_a_dropped_member_is_told_to_join_again() -> None:
    some = groups(t=1)
    with pytest.raises(Fenced, match="join again"):
        some.touch("g", "a", 0, 0.0)


# -- two steps

ORDERED = Terms(ordered_s=10.0)


def assignment(group: Group, member: str) -> tuple[str, str]:
    known = group.members[member]
    return " ".join(known.queues), " ".join(known.pending)


def test_an_ordered_queue_waits_for_its_holder_which_commits_meanwhile() -> None:
    wakers: Wakers = {}
    some = Groups(lambda topic: 2, 100, Place(), wakers)
    first = some.join("g", "a", T, 10.0, 0.0, ORDERED).generation
    group = some.join("g", "b", T, 10.0, 0.0, ORDERED)
    assert (assignment(group, "a"), assignment(group, "b")) == (("t:0", ""), ("", "t:1"))
    some.touch("g", "a", first, 1.0)
    some.check_commit("g", "a", first, ["t:0", "t:1"])
    assert assignment(group, "b") == ("", "t:1")
    second = group.generation
    wakers.clear()
    some.touch("g", "a", second, 2.0)
    assert assignment(group, "b") == ("t:1", "")
    assert list(wakers) == [member_waker("g", "b")], "only who gets something is told"
    with pytest.raises(Fenced):
        some.check_commit("g", "a", second, ["t:1"])
    some.check_commit("g", "b", group.generation, ["t:1"])


def test_a_queue_that_comes_back_before_it_was_let_go_of_stays() -> None:
    some = groups(t=2)
    first = some.join("g", "a", T, 10.0, 0.0, ORDERED).generation
    some.join("g", "b", T, 10.0, 0.0, ORDERED)
    some.leave("g", "b")
    group = some.touch("g", "a", first, 1.0)
    assert assignment(group, "a") == ("t:0 t:1", "")
    some.check_commit("g", "a", first, ["t:0", "t:1"])


def test_a_member_that_lets_go_is_waited_for_until_its_session_ends_and_others_are_not() -> None:
    for lets_go in (True, False):
        some = groups(t=2)
        some.join("g", "a", T, 10.0, 0.0, lets_go=lets_go)
        group = some.join("g", "b", T, 30.0, 5.0)
        assert assignment(group, "b") == (("", "t:1") if lets_go else ("t:1", ""))
        some.expire(10.0)
        assert assignment(group, "b") == ("t:0 t:1", "")


def test_after_a_start_the_members_of_before_go_on_and_what_they_held_waits_for_them() -> None:
    some = Groups(lambda topic: 4, 200, Place(), {}, lambda name: name == "g", 50.0)
    group = some.join("g", "b", T, 10.0, 51.0, ORDERED)
    assert assignment(group, "b") == ("", "t:0 t:1 t:2 t:3")
    group = some.join("g", "a", T, 10.0, 52.0, ORDERED, holding=["t:0", "t:3", "x:0"])
    assert (assignment(group, "a"), assignment(group, "b")) == (("t:0", "t:1"), ("", "t:2 t:3"))
    some.check_commit("g", "a", group.generation, ["t:0", "t:3"])
    some.touch("g", "a", group.generation, 53.0)
    assert assignment(group, "b") == ("t:3", "t:2"), "of this one it is known that nobody has it"
    some.touch("g", "b", group.generation, 59.0)
    some.expire(60.0)
    assert (assignment(group, "a"), assignment(group, "b")) == (("t:0 t:1", ""), ("t:2 t:3", ""))
    for _ in range(2):
        assert assignment(some.join("h", "a", T, 10.0, 52.0, ORDERED), "a") == ("t:0 t:1 t:2 t:3", ""), "a new group"
        some.leave("h", "a")


def test_what_was_held_in_this_life_waits_for_nobody_of_an_earlier_one() -> None:
    some = Groups(lambda topic: 3, 200, Place(), {}, lambda name: True, 50.0)
    group = some.join("g", "a", T, 10.0, 51.0, ORDERED, holding=["t:1"])
    assert assignment(group, "a") == ("t:1", "t:0 t:2")
    some.leave("g", "a")
    group = some.join("g", "b", T, 10.0, 52.0, ORDERED)
    assert assignment(group, "b") == ("t:1", "t:0 t:2")
    some.expire(60.0)
    assert assignment(group, "b") == ("t:0 t:1 t:2", "")


@dataclass
class Client:
    """A member as its own program sees it: ``works`` on the queues that it was given and has not let go of."""

    name: str
    works: set[str] = field(default_factory=set)
    generation: int = -1
    lease_until: float = 0.0
    is_in: bool = False


class Model:
    """A group of clients that come, go, hang and are slow, and a broker that begins anew."""

    SESSION_S = 10.0

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.terms = self.rng.choice([Terms(), Terms(ordered_s=self.SESSION_S)])
        self.queues = {"t": self.rng.randint(1, 9), "u": self.rng.randint(0, 5)}
        self.claim = Claim(frozenset(self.queues))
        self.clients = [Client(name) for name in "abcde"]
        self.worked: dict[str, set[tuple[str, int]]] = {}  # queue -> who has worked on it, in which generations
        self.late: set[tuple[str, int, str]] = set()  # those of them after whom somebody else has begun
        self.begin(0)

    def begin(self, generation: int) -> None:
        was_read = generation > 0
        self.groups = Groups(self.queues.__getitem__, generation, Place("x"), {}, lambda name: was_read, self.now)

    @property
    def group(self) -> Group | None:
        return self.groups._groups.get("g")

    def hear(self, client: Client, group: Group) -> None:
        """It lets go of what is not its own any more, and begins with what is."""
        client.works = set(group.members[client.name].queues)
        client.generation, client.lease_until = group.generation, self.now + self.SESSION_S
        for queue in client.works:
            earlier = self.worked.setdefault(queue, set())
            self.late.update((name, said, queue) for name, said in earlier if name != client.name)
            earlier.add((client.name, client.generation))

    def join(self, client: Client) -> None:
        holding = client.works if client.lease_until > self.now else set()
        client.works = set(holding)
        group = self.groups.join(
            "g", client.name, self.claim, self.SESSION_S, self.now, self.terms, holding=sorted(holding)
        )
        client.is_in = True
        self.hear(client, group)

    def look(self, client: Client, *, carries_out: bool = True) -> None:
        try:
            group = self.groups.touch("g", client.name, client.generation, self.now)
        except Fenced:
            client.works, client.is_in = set(), False
            return
        client.lease_until = self.now + self.SESSION_S
        if carries_out and group.members[client.name].changed > client.generation:
            self.hear(client, group)

    def step(self) -> None:
        client = self.rng.choice(self.clients)
        what = self.rng.choice(["join", "look", "look", "look", "heartbeat", "leave", "time", "time", "begin", "topic"])
        if what == "join" and (not client.is_in or self.rng.random() < 0.2):
            self.join(client)
        elif what in ("look", "heartbeat") and client.is_in:
            self.look(client, carries_out=what == "look")
        elif what == "leave":
            client.works, client.is_in = set(), False
            self.groups.leave("g", client.name)
        elif what == "time":
            self.now += self.rng.choice([0.5, 3.0, 11.0])
            for one in self.clients:
                if one.lease_until <= self.now:
                    one.works = set()  # it knows that its session is over
            self.groups.expire(self.now)
        elif what == "begin" and self.rng.random() < 0.3:
            self.begin(self.groups._generation + 1000)
            for one in self.clients:
                one.is_in = False
        elif what == "topic":
            self.queues["u"] = self.rng.randint(0, 5)
            self.groups.queues_changed("u")

    def check(self) -> None:
        group = self.group
        if group is None:
            return
        holders = [(queue, name) for name, one in group.members.items() for queue in one.held]
        assert dict(holders) == group.holders, "what a member holds it alone holds"
        counts = [len(one.dealt) for one in group.members.values()]
        assert max(counts) - min(counts) <= 1
        for one in group.members.values():
            assert set(one.leaving) == one.held.keys() - set(one.dealt)
        if self.terms.ordered_s:
            working = [queue for client in self.clients for queue in client.works]
            assert len(working) == len(set(working)), "two work on one queue"
        else:
            assert not any(one.pending for one in group.members.values()), "an ordinary group waits for nobody"
        for name, generation, queue in self.rng.sample(sorted(self.late), min(10, len(self.late))):
            with pytest.raises(Fenced):
                self.groups.check_commit("g", name, generation, [queue])
        for client in self.clients:
            for queue in client.works if client.is_in and self.terms.ordered_s else ():
                self.groups.check_commit("g", client.name, client.generation, [queue])

    def end(self) -> None:
        """Those that are there carry out what they hear; the others are silent until their sessions end."""
        for number in range(8):
            for client in self.clients:
                if client.is_in:
                    self.look(client)
                if not client.is_in and number < 5:
                    self.join(client)
                self.check()
            self.now += self.SESSION_S / 3
            self.groups.expire(self.now)
        assert self.group is not None
        everything = {f"{topic}:{number}" for topic, count in self.queues.items() for number in range(count)}
        assert {queue for client in self.clients for queue in client.works} == everything
        assert not any(one.pending or one.leaving for one in self.group.members.values())


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_members_do_none_works_where_another_does_and_all_is_dealt_in_the_end(seed: int) -> None:
    model = Model(seed)
    for _ in range(80):
        model.step()
        model.check()
    model.end()
