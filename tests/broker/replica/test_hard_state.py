"""The hard state: what was promised is never forgotten, whatever a power loss tears."""

from __future__ import annotations

import contextlib
import errno
import random

import pytest

from broker.replica.hard_state import PATH, SLOT_BYTES, HardStateFile, decode, encode
from broker.replica.log_face import HardState, StateFile
from penstock.errors import Damaged, StorageFailed
from tests.simulation.disk import PowerCut, SimDisk

FIRST = HardState("cluster", "a", "0" * 32)


def test_what_was_saved_is_there_again_and_a_new_folder_has_nothing() -> None:
    disk = SimDisk()
    file: StateFile = HardStateFile(disk)
    assert file.load() is None
    assert disk.paths("replica") == []
    for epoch in range(1, 6):
        file.save(FIRST.entered(epoch).voted("b"))
        assert HardStateFile(disk).load() == FIRST.entered(epoch).voted("b")
    assert disk.paths("replica") == [PATH]


@pytest.mark.parametrize("seed", range(60))
def test_no_power_loss_takes_back_what_was_promised(seed: int) -> None:
    rng, disk = random.Random(seed), SimDisk(seed)
    promised, tried = FIRST, FIRST
    HardStateFile(disk).save(FIRST)
    for _ in range(8):
        file = HardStateFile(disk)
        loaded = file.load()
        assert loaded is not None
        assert (loaded.epoch, loaded.vote) in {(promised.epoch, promised.vote), (tried.epoch, tried.vote)}
        assert promised.mark <= loaded.mark <= tried.mark
        promised = tried = loaded
        with contextlib.suppress(PowerCut):
            for _ in range(rng.randrange(8)):
                if rng.random() < 0.6:
                    tried = tried._replace(mark=tried.mark + rng.randint(1, 9))
                    file.note(tried.mark)
                    continue
                if rng.random() < 0.3:
                    disk.cut_power("any", rng.randrange(2))
                tried = tried.entered(tried.epoch + 1).voted(rng.choice("abc"))
                file.save(tried)
                promised = tried
        disk.lose_power()


def test_with_both_slots_bad_nothing_is_known_and_with_one_the_other_is() -> None:
    disk = SimDisk()
    file = HardStateFile(disk)
    file.save(FIRST.entered(1))
    file.save(FIRST.entered(2))
    disk.flip(PATH, SLOT_BYTES * 0 + 30)
    survivor = HardStateFile(disk).load()
    assert survivor is not None
    assert survivor.epoch in (1, 2)
    disk.flip(PATH, SLOT_BYTES + 30)
    with pytest.raises(Damaged):
        HardStateFile(disk).load()


def test_every_flipped_bit_of_a_slot_shows() -> None:
    slot = encode(HardState("c", "node", "u" * 32, 3, "b", 1 << 40), 7)
    assert decode(slot) == (7, HardState("c", "node", "u" * 32, 3, "b", 1 << 40))
    for at in range(120):
        bad = bytearray(slot)
        bad[at] ^= 16
        assert decode(bytes(bad)) is None
    with pytest.raises(ValueError, match="do not fit"):
        encode(FIRST._replace(node="n" * SLOT_BYTES), 1)


def test_an_error_of_the_disk_fails_a_promise_and_not_a_mark() -> None:
    disk = SimDisk()
    file = HardStateFile(disk)
    file.note(5)
    assert file.load() is None
    file.save(FIRST)
    disk.fail("pwrite", errno.EIO)
    file.note(5)
    for kind in ("pwrite", "sync"):
        disk.fail(kind, errno.EIO)
        with pytest.raises(StorageFailed):
            file.save(FIRST.entered(1))
