from __future__ import annotations

import ctypes
import gc
import itertools
import platform
import subprocess
import sys
import weakref
from typing import Any, cast

import pytest
import trio
import trio.testing

from penstock.service import memory
from penstock.service.memory import (
    COLLECT_AFTER,
    GIVE_BACK_EVERY_S,
    GIVE_BACK_SHARE,
    LOOK_AT_ALL_EVERY_S,
    Sparing,
    settle,
)
from tests.penstock.hand_clock import HandClock

is_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt and malloc_trim are glibc's")


@pytest.mark.usefixtures("thawed")
def test_what_stands_is_not_looked_at_again_and_freed_all_the_same() -> None:
    class Kept:
        pass

    kept: list[Any] = [Kept() for _ in range(10)]
    settle()
    assert gc.get_threshold() == COLLECT_AFTER
    assert not [one for one in gc.get_objects() if isinstance(one, Kept)]
    references = [weakref.ref(one) for one in kept]
    kept.clear()
    assert [reference() for reference in references] == [None] * 10
    kept.append(Kept())
    assert len([one for one in gc.get_objects() if isinstance(one, Kept)]) == 1


class Node:
    """Something that may hold itself."""

    def __init__(self) -> None:
        self.other: Node | None = None


@pytest.mark.usefixtures("thawed")
def test_what_a_full_collection_has_left_is_not_looked_at_by_the_next_ones() -> None:
    settle()
    settle()
    assert len([one for one in gc.callbacks if isinstance(one, Sparing)]) == 1, "once, however many services stand"
    kept = Node()
    gc.collect(1)
    assert kept in gc.get_objects()
    gc.collect()
    assert kept not in gc.get_objects()
    gone = weakref.ref(kept)
    del kept
    assert gone() is None


@pytest.mark.usefixtures("thawed")
def test_a_circle_that_was_spared_waits_for_the_collection_that_looks_at_everything() -> None:
    clock = HandClock()
    gc.callbacks.append(Sparing(clock))
    circle = Node()
    circle.other = circle
    gc.collect()
    gone = weakref.ref(circle)
    del circle
    clock.now = LOOK_AT_ALL_EVERY_S - 1
    gc.collect()
    assert gone() is not None
    clock.now = LOOK_AT_ALL_EVERY_S
    gc.collect(1)
    assert gone() is not None
    gc.collect()
    assert gone() is None


HEAP = """
import sys
from penstock.service.memory import bound_heap
if sys.argv[1] == "bound":
    bound_heap()
bytearray(8 << 20)  # glibc has seen such a block freed
held = [(bytearray(4 << 20), bytes(100_000)) for _ in range(25)]
held = [small for _, small in held]
with open("/proc/self/statm") as file:
    print(int(file.read().split()[1]) * 4096 >> 20)
"""


@is_glibc
def test_large_blocks_go_back_to_the_system_also_from_between_small_ones() -> None:
    def resident_mib(how: str) -> int:
        return int(subprocess.run([sys.executable, "-c", HEAP, how], capture_output=True, check=True).stdout)

    assert resident_mib("bound") < resident_mib("free") - 50


SPOTTED = """
import sys, trio, trio.testing
from penstock.service.memory import bound_heap, give_back

def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20

async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_back)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()

bound_heap()
grown = [bytearray(1000) for _ in range(100_000)]
held = [one for number, one in enumerate(grown) if number // 500 % 10 == 9]  # the end of the heap too
del grown
before = resident_mib()
trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
print(before - resident_mib())
"""


@is_glibc
def test_what_is_free_between_blocks_that_stay_goes_back_too() -> None:
    """Of 100 MB nine tenths are free."""
    shown = subprocess.run([sys.executable, "-c", SPOTTED], capture_output=True, check=True).stdout
    assert int(shown) > 70


async def test_giving_back_takes_no_more_than_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[float] = []
    clock = cast(trio.testing.MockClock, trio.lowlevel.current_clock())

    class Library:
        @staticmethod
        def malloc_trim(_pad: int) -> None:
            calls.append(trio.current_time())
            clock.jump(0.1 if len(calls) == 2 else 0)

    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Library)
    with trio.move_on_after(200):
        await memory.give_back()
    assert [later - one for one, later in itertools.pairwise(calls)][:3] == pytest.approx(
        [GIVE_BACK_EVERY_S, 0.1 + 0.1 / GIVE_BACK_SHARE, GIVE_BACK_EVERY_S]
    )


async def test_another_library_gives_back_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    await memory.give_back()
    await trio.lowlevel.checkpoint()
