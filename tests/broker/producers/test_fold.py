from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest

from broker.producers import fold
from broker.producers.fold import KNOWN_MS, RECENT_MAX, Producers, Stretch


def state(producers: Producers) -> bytes:
    return b"".join(producers.freeze())


def restored(snapshot: bytes) -> Producers:
    made = Producers()
    made.restore(msgpack.unpackb(snapshot))
    return made


def mixed(seed: int) -> list[tuple[bytes, int, int, int]]:
    """Runs of several producers: producer, number, count, time."""
    rng, runs, at, now = random.Random(seed), [], dict.fromkeys(b"abcdef", 1), 0
    for _ in range(200):
        name = rng.choice(b"abcdef")
        count = rng.choice([1, 1, 5, 300])
        runs.append((bytes([name]), max(1, at[name] - rng.choice([0, 0, 0, 4])), count, now))
        at[name] += count + rng.choice([0, 0, 2])
        now += rng.choice([0, 1, 1000, KNOWN_MS // 3])
    return runs


def note(producers: Producers, run: tuple[bytes, int, int, int]) -> None:
    producers.note(*run, 0, 0)


@pytest.mark.interpreted
@pytest.mark.parametrize("seed", range(5))
def test_a_state_goes_on_from_a_snapshot_as_it_would_have_without(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "PRODUCERS_MAX", 4)
    live, runs = Producers(), mixed(seed)
    for run in runs[:100]:
        note(live, run)
    other = restored(state(live))
    for run in runs[100:]:
        note(live, run)
        note(other, run)
    assert state(live) == state(other)
    assert 0 < len(live) <= 4


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_same_whether_runs_are_noted_one_by_one(seed: int) -> None:
    whole, single = Producers(), Producers()
    for producer, first, count, now in mixed(seed):
        note(whole, (producer, first, count, now))
        for number in range(first, first + count):
            note(single, (producer, number, 1, now))
    assert state(whole) == state(single)


def test_a_snapshot_keeps_what_was_while_the_state_goes_on() -> None:
    producers = Producers()
    for run in mixed(1)[:50]:
        note(producers, run)
    wanted, pieces = state(producers), producers.freeze()
    for run in mixed(1)[50:]:
        note(producers, run)
    assert b"".join(pieces) == wanted != state(producers)


@pytest.mark.interpreted
def test_the_producers_that_were_silent_for_the_longest_time_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "PRODUCERS_MAX", 2)
    producers = Producers()
    for number, name in enumerate((b"a", b"b", b"a", b"c")):
        note(producers, (name, number, 1, 0))
    assert [producers.get(name) is not None for name in (b"a", b"b", b"c")] == [True, False, True]


def test_a_producer_that_was_silent_for_seven_days_is_forgotten() -> None:
    producers = Producers()
    note(producers, (b"a", 1, 1, 1000))
    note(producers, (b"b", 1, 1, 1000 + KNOWN_MS))
    assert producers.get(b"a") is not None
    note(producers, (b"c", 1, 1, 1001 + KNOWN_MS))
    assert producers.get(b"a") is None


def test_it_knows_where_the_latest_runs_are_and_no_more_than_memory_may_have() -> None:
    producers = Producers()
    for number in range(RECENT_MAX + 2):
        producers.note(b"ab"[number % 2 :][:1], number // 2 * 10, 10, 0, number, 5)
    stretches: Any = producers.recent(b"b")
    assert stretches[0] == Stretch(10, 10, 3, 5)
    assert len(stretches) == RECENT_MAX // 2
    assert list(stretches) == sorted(stretches)
