"""Three brokers with one log, led by their cores: what is acknowledged is in all copies, byte for byte."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from broker.replica.members import with_member, without_member
from broker.store.segment import segment_path
from penstock.errors import PenstockError
from penstock.protocol.requests.replicas import Member, Members
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.replica.copies import mend
from tests.properties.request_mix import Mix
from tests.simulation.replicas import GROUP, Copy, World


def harm(world: World, node: Copy, fate: float) -> None:
    """One of three nodes at a time dies or is cut off, and comes back."""
    if fate < 0.06:
        world.revive()
    if fate < 0.01:
        node.die(power=world.rng.random() < 0.5)
    elif fate < 0.02:
        world.cut_off = {node.name}


@pytest.mark.parametrize("seed", [0, 1, 2, 126])  # in the last one, what a power loss tears is repaired
def test_copies_are_equal_whatever_happens_to_their_nodes(seed: int) -> None:
    world, rng = World(seed), random.Random(seed)
    rig = world.elect().rig
    assert rig
    mix = Mix(rig, rng)
    for number in range(150):
        harm(world, rng.choice(world.nodes), rng.random())
        if number in (50, 100):
            world.revive()
            world.elect().die(power=number == 50)
        if rng.random() < 0.3:
            world.tick()
        mix.rig = world.elect().rig or mix.rig
        mix.step()
    world.level()
    world.check()
    epochs = [epoch for epoch, _ in world.led]
    assert epochs == sorted(set(epochs))
    assert len(epochs) >= 3


def test_a_fact_that_was_acknowledged_is_in_every_copy_whoever_died() -> None:
    world = World(5)
    asked: dict[str, list[Result]] = {}
    for number in range(60):
        leader = world.elect()
        assert leader.rig
        topic = f"topic-{number}"
        asked[topic] = leader.rig.submit(CreateTopic(topic, 1))
        if number % 10 == 9:
            world.revive()
            leader.die(power=number % 20 == 9)
        elif number % 10 == 4:
            world.revive()
            world.cut_off = {leader.name}
        for _ in range(3):
            world.tick()
    world.level()
    world.check()
    acknowledged = [name for name, answers in asked.items() if answers and not isinstance(answers[0], PenstockError)]
    assert len(acknowledged) > 30
    assert len(world.led) > 6
    for node in world.nodes:
        assert set(acknowledged) <= {topic.topic for topic in node.state.topics}


def change(world: World, after: Callable[[Members], Members]) -> None:
    """Has the members changed by whoever leads, and waits until that is committed; nodes die meanwhile."""
    for number in range(400):
        leader = world.elect()
        wanted = after(leader.replica.members)
        if leader.replica.members == wanted and leader.log.committed > leader.state.members.now.position:
            return
        leader.change(wanted)
        if number % 7 == 3:
            leader.die(power=world.rng.random() < 0.5)
            world.revive()
        world.tick()
    raise AssertionError("the members do not change")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_log_says_who_its_members_are_whoever_dies_while_they_change(seed: int) -> None:
    world = World(seed)
    observer = Member("c", "c", "", False)
    change(world, lambda now: without_member(now, "c"))
    assert [node.replica.members.voters for node in world.nodes[:2]] == [["a", "b"]] * 2
    change(world, lambda now: with_member(now, observer))
    change(world, lambda now: with_member(now, observer)._replace(copies=2))
    change(world, lambda now: with_member(now, Member("c", "c")))
    world.level()
    world.check()
    for node in world.nodes:
        assert node.state.members.now.members == node.replica.members == GROUP._replace(copies=2)
        node.die(power=True)
    world.revive()
    assert [node.replica.members for node in world.nodes] == [GROUP._replace(copies=2)] * 3, "a start knows it too"


def test_a_leader_has_grown_until_its_core_knows_of_what_was_appended() -> None:
    world = World(4)
    leader = world.elect()
    assert leader.rig
    assert not leader.replica.has_grown
    leader.rig.submit(CreateTopic("t", 1))
    assert leader.replica.has_grown
    world.post(leader, leader.replica.appended(world.clock.now))
    assert not leader.replica.has_grown


def test_a_second_change_waits_until_the_first_is_committed() -> None:
    world = World(4)
    leader = world.elect()
    world.level()
    assert leader.change(without_member(GROUP, "c")) == ""
    assert "another change" in leader.change(Members((Member("a", "a"),)))


def test_what_is_left_of_a_lost_group_goes_on_by_force_with_all_that_it_had() -> None:
    world = World(6)
    world.elect()
    world.level()
    leader = world.elect()
    assert leader.rig
    leader.rig.submit(CreateTopic("kept", 1))
    world.level()
    left = world.nodes[2]
    for node in world.nodes[:2]:
        node.die(power=True)
    del world.nodes[:2]
    left.force("ab")
    for _ in range(5):
        world.tick()
    assert left.rig
    answers = left.rig.submit(CreateTopic("new", 1))
    for _ in range(5):
        world.tick()
    assert not isinstance(answers[0], PenstockError)
    left.die(power=True)
    left.begin()
    world.elect()
    assert left.replica.members.voters == ["c"]
    assert {"kept", "new"} <= {topic.topic for topic in left.state.topics}


def test_a_node_that_finds_rot_as_it_is_to_lead_leaves_that_to_another_and_is_repaired() -> None:
    world = World(7)
    world.drop = 0.0
    world.level()
    leader = world.elect()
    heir, other = [node for node in world.nodes if node is not leader]
    world.cut_off = {other.name}
    assert leader.rig
    answers = leader.rig.submit(CreateTopic("kept", 1))
    while heir.log.end < leader.log.end:
        leader.sync()
        world.deliver()
    heir.sync()
    heir.die(power=False)
    heir.begin()
    assert heir.log.applied < heir.log.end, "what it has it has not taken in"
    base = max(base for base in heir.store.log.bases if base <= heir.log.applied)
    heir.disk.flip(segment_path(base), heir.log.end - base - 5)
    leader.die(power=False)
    world.bag.clear()
    world.cut_off = set()
    led = len(world.led)
    for _ in range(60):
        world.tick()
    assert len(world.led) == led, "the only one that has all of it cannot take it in"
    leader.begin()
    assert world.elect() is leader
    for _ in range(60):
        world.tick()
    mend(heir, world.nodes)
    assert heir.repair.is_sound
    world.post(heir, heir.replica.repaired(world.clock.now))
    world.level()
    world.check()
    assert all("kept" in [topic.topic for topic in node.state.topics] for node in world.nodes)
    assert not answers or not isinstance(answers[0], PenstockError) or answers[0].unknown
