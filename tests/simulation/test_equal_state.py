"""Equal prefixes of the log give equal states: in each life of a broker under faults, live and replayed."""

from __future__ import annotations

import pytest

import broker.net.server
from tests.broker.recorded import RecordedState
from tests.simulation.cluster import check, scenario
from tests.simulation.running import simulate
from tests.simulation.seeds import seeds

SEEDS = seeds(4)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_has_at_each_record_the_state_that_was_there_when_it_was_written(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives: list[RecordedState] = []

    def state() -> RecordedState:
        lives.append(RecordedState())
        return lives[-1]

    monkeypatch.setattr(broker.net.server, "BrokerState", state)
    check(simulate(seed, lambda simulation: scenario(simulation, 200)).result)
    known: dict[tuple[int, int], bytes] = {}
    for number, life in enumerate(lives):
        for place, digest in life.seen.items():
            assert known.setdefault(place, digest) == digest, f"life {number} differs behind position {place[0]}"
