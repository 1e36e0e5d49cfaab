"""Any history of a group, in any pieces, with crashes, cuts, rot, retention, whole copies, new leaders: the bytes of
all copies are equal, and so are the states at equal positions."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.broker.replica.copies import Group, check
from tests.properties.request_mix import Mix

STEPS = 250


def play(seed: int, steps: int = STEPS) -> Group:
    """A group behind a mix of requests and hardships."""
    rng = random.Random(seed)
    group = Group(seed, retention_bytes=rng.choice([0, 10_000]))
    group.reach = rng.choice([0.2, 0.7])
    rotten = rng.choice(group.nodes)
    mix = Mix(group.leader, rng)
    for _ in range(steps):
        fate = rng.random()
        if fate < 0.02:
            group.elect()
        elif fate < 0.03:
            group.crash(group.leader.node, power=rng.random() < 0.5)
            group.elect()
        elif fate < 0.06:
            group.crash(rng.choice(group.followers), power=rng.random() < 0.5)
        elif fate < 0.15:
            rng.choice(group.nodes).store.tick(group.clock.wall_ms(), group.clock.wall_ms())
        elif fate < 0.17:
            group.rot(rotten)
        if mix.rig is not group.leader:
            mix.rig = group.leader
        mix.step()
    return group


@settings(max_examples=10, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 30))
def test_copies_are_equal_whatever_happened(seed: int) -> None:
    group = play(seed)
    group.level()
    group.scrub()
    check(group.nodes)
