from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from tests.simulation.running import Simulation, simulate

ROOT = Path(__file__).parents[2]


async def race(simulation: Simulation) -> list[int]:
    """Ten tasks that are all ready at once: only the seed can say who comes first."""
    order: list[int] = []

    async def runner(number: int) -> None:
        for _ in range(3):
            await trio.sleep(1.0)
        order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(runner, number)
    return order


def test_the_same_seed_schedules_the_same_and_another_one_differently() -> None:
    first, again, other = simulate(1, race), simulate(1, race), simulate(2, race)
    assert (first.digest, first.result) == (again.digest, again.result)
    assert other.result != first.result
    assert sorted(other.result) == list(range(10))


def test_a_system_in_another_thread_changes_nothing() -> None:
    alone = simulate(1, race).result
    ends, laps, beside = threading.Event(), 0, [alone]

    async def turns() -> None:
        nonlocal laps
        while not ends.is_set():
            await trio.lowlevel.checkpoint()
            laps += 1

    async def other() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(turns)

    thread = threading.Thread(target=trio.run, args=(other,))
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        while laps < 10_000:
            beside.append(simulate(1, race).result)
    finally:
        sys.setswitchinterval(usual)
        ends.set()
        thread.join()
    assert [one for one in beside if one != alone] == []


def test_a_blocking_call_takes_simulated_time_and_has_its_effect_within_it() -> None:
    async def scenario(simulation: Simulation) -> tuple[float, float]:
        world = simulation.world("service", (1.0, 1.0))
        return await world.offload(trio.current_time), trio.current_time()

    assert simulate(1, scenario).result == (0.5, 1.0)


def test_each_authority_has_chance_of_its_own() -> None:
    simulation = Simulation(1)
    assert simulation.rng("a").random() == Simulation(1).rng("a").random()
    assert simulation.rng("a").random() != simulation.rng("b").random()
    assert Simulation(2).rng("a").random() != simulation.rng("a").random()


@pytest.mark.slow
def test_a_seed_gives_the_same_run_in_other_processes() -> None:
    code = (
        "import sys, types; tests = sys.modules['tests'] = types.ModuleType('tests'); tests.__path__ = ['tests'];"
        "from tests.simulation.cluster import scenario; from tests.simulation.running import simulate;"
        "print([simulate(seed, scenario).digest for seed in (5, 6)])"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2", "random")
    }
    assert len(digests) == 1
