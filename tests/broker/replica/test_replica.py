"""Three brokers with one log, led by their cores: what is acknowledged is in all copies, byte for byte."""

from __future__ import annotations

import random

import pytest

from penstock.errors import PenstockError
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.topics import CreateTopic
from tests.properties.request_mix import Mix
from tests.simulation.replicas import Copy, World


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
