"""Every call that changes the disk fails once, or the power goes in it: nothing acknowledged is lost, nothing refused
turns up.

The same run is made again and again; in the n-th one, the n-th changing call is the one that fails, until a run
completes without meeting its fault.
"""

from __future__ import annotations

import contextlib
import errno

import pytest

from broker.store.settings import StoreSettings
from penstock.errors import DataFolderUnusable, PenstockError, StorageFull
from tests.broker.store.store_rig import bodies, command, incoming, opened, stored, sync, tick
from tests.simulation.disk import PowerCut, SimDisk

SETTINGS = StoreSettings(
    segment_bytes=2048,
    reserve_step_bytes=512,
    emergency_bytes=256,
    chunk_bytes=900,
    retention_bytes=0,
    retention_s=0.0,
)
MESSAGES = 20


class Run:
    """One process after another on one disk, until all messages are sent. ``acked``: what was promised."""

    def __init__(self, seed: int) -> None:
        self.disk = SimDisk(seed)
        self.disk.half_written = 0.5
        self.acked: list[bytes] = []
        self.refused: list[bytes] = []
        self.unknown: list[bytes] = []

    def go(self) -> None:
        """Raises ``PowerCut`` where the power goes, a ``PenstockError`` where the store gives up."""
        store = opened(self.disk, SETTINGS)
        stored(store, command("+all t"))
        for number in range(MESSAGES):
            body = b"%d." % number * 20
            try:
                store.append([incoming(body)], 1000)
            except StorageFull:
                self.refused.append(body)
                continue
            self.unknown.append(body)
            sync(store)
            self.acked.append(self.unknown.pop())
            tick(store, 1000 + 100 * number)
            sync(store)
        store.close(9000)

    def check(self) -> None:
        found = self._found()
        assert found in (self.acked, self.acked + self.unknown)
        self.disk.lose_power()
        assert self._found() == found, "what a start has shown is durable"

    def _found(self) -> list[bytes]:
        store = opened(self.disk, SETTINGS)
        assert store.damage == []
        found = bodies(store) if store._index.find("t:0") else []
        if self.acked:
            assert bodies(store, "~all") == found
        return found


@pytest.mark.parametrize("fault", ["EIO", "ENOSPC", "power"])
@pytest.mark.parametrize("then", ["kill", "power loss"])
def test_whichever_call_fails_nothing_acknowledged_is_lost_and_nothing_refused_turns_up(fault: str, then: str) -> None:
    for number in range(1000):
        run = Run(number)
        if fault == "power":
            run.disk.cut_power("any", number)
        else:
            run.disk.fail("any", getattr(errno, fault), number)
        with contextlib.suppress(PenstockError, PowerCut):
            run.go()
        met = run.disk.calls["any"] > number
        run.disk.lose_power() if then == "power loss" else run.disk.kill()
        run.check()
        if not met:
            break
    assert number > 100, "the run makes too few calls to mean much"


def test_a_start_that_fails_can_be_made_again() -> None:
    reference = Run(1)
    reference.go()
    for number in range(1000):
        run = Run(1)
        run.go()
        for path in run.disk.paths("index")[-2:]:
            run.disk.delete(path)
        calls = run.disk.calls["any"]
        run.disk.fail("any", errno.EIO, number)
        with contextlib.suppress(PenstockError):
            opened(run.disk, SETTINGS)
        met = run.disk.calls["any"] > calls + number
        run.disk.lose_power()
        run.check()
        if not met:
            break
    assert number > 3


def test_a_folder_that_is_read_only_is_unusable_and_not_harmed() -> None:
    run = Run(1)
    run.go()
    run.disk.fail("make_folder", errno.EROFS)
    with pytest.raises(DataFolderUnusable):
        opened(run.disk, SETTINGS)
    run.check()
