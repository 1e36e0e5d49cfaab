"""Which core servers and generator get."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.cores import CORES_MAX, FREE, Cores, choose, pin

pytestmark = pytest.mark.endtoend


@pytest.fixture(autouse=True)
def _free_again() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


def test_servers_get_the_core_where_a_sync_takes_least_and_the_generator_another(tmp_path: Path) -> None:
    mine = os.sched_getaffinity(0)
    chosen = choose(tmp_path)
    assert list(chosen.sync_us) == sorted(mine)[:CORES_MAX]
    assert all(time_us > 0 for time_us in chosen.sync_us.values())
    if len(mine) > 1:
        assert chosen.sync_us[chosen.server] == min(chosen.sync_us.values())
        assert chosen.generator in mine - {chosen.server}
    assert os.sched_getaffinity(0) == mine
    assert list(tmp_path.iterdir()) == []


def test_with_one_core_nobody_is_kept_anywhere(tmp_path: Path) -> None:
    only = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {only})
    chosen = choose(tmp_path)
    assert (chosen.server, chosen.generator) == (FREE, FREE)
    assert chosen.sync_us.keys() == {only}
    assert Cores() == Cores(FREE, FREE)


def test_a_process_is_kept_on_its_core_or_left_free() -> None:
    mine = os.sched_getaffinity(0)
    pin(FREE)
    assert os.sched_getaffinity(0) == mine
    pin(max(mine))
    assert os.sched_getaffinity(0) == {max(mine)}
