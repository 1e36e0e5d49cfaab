"""Backups of a log: a prefix of it, brought up to date by what is new, checked on the way back."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import TypeVar

import pytest

from broker.store.backup import MANIFEST, BackupReport, Manifest, back_up, read_manifest, restore
from broker.store.inspection import dump
from broker.store.segment import segment_path
from penstock.errors import DataFolderUnusable
from tests.broker.store.store_rig import fill, incoming, opened, segment_paths, stored
from tests.simulation.disk import PowerCut, SimDisk

T = TypeVar("T")


def done(steps: Generator[object, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made


def records(disk: SimDisk) -> list[tuple[int, bytes]]:
    return [(one.position, one.body) for one in dump(disk)]


def restored(backup: SimDisk) -> SimDisk:
    made = SimDisk()
    done(restore(backup, made))
    return made


def test_a_restored_log_is_the_log_as_it_was_at_the_backup_and_its_broker_goes_on() -> None:
    source, backup = SimDisk(), SimDisk()
    store = opened(source)
    fill(store, 120)
    before = records(source)
    report: BackupReport = done(back_up(source, backup, 5000))
    fill(store, 10)
    assert report.damage == []
    assert report.manifest.end == report.copied_bytes
    copy = restored(backup)
    assert records(copy) == before
    stored(opened(copy), incoming("goes on"))
    assert records(copy)[-1][1] == b"goes on"


def test_the_next_backup_copies_only_what_is_new() -> None:
    source, backup = SimDisk(), SimDisk()
    store = opened(source)
    fill(store, 120)
    first: BackupReport = done(back_up(source, backup, 5000))
    kept = segment_paths(backup)[:-1]
    before = {path: backup.read(path) for path in kept}
    fill(store, 60)
    second: BackupReport = done(back_up(source, backup, 6000))
    last = first.manifest.files[-1]
    assert second.copied_bytes == second.manifest.end - last.base
    assert {path: backup.read(path) for path in kept} == before
    assert records(restored(backup)) == records(source)


def test_segments_that_retention_removed_leave_the_backup() -> None:
    source, backup = SimDisk(), SimDisk()
    fill(opened(source), 120)
    done(back_up(source, backup, 5000))
    source.delete(segment_path(0))
    report: BackupReport = done(back_up(source, backup, 6000))
    assert report.removed == 1
    assert segment_paths(backup) == segment_paths(source)


def test_the_backup_of_another_log_is_refused_and_stays_as_it_was() -> None:
    source, backup = SimDisk(), SimDisk()
    fill(opened(source), 120)
    done(back_up(source, backup, 5000))
    before = {path: backup.read(path) for path in backup.paths()}
    other = SimDisk()
    stored(opened(other), incoming("another log"))
    with pytest.raises(DataFolderUnusable, match="another log"):
        done(back_up(other, backup, 6000))
    assert {path: backup.read(path) for path in backup.paths()} == before


def test_rot_of_the_log_is_reported_and_copied_as_it_is() -> None:
    source, backup = SimDisk(), SimDisk()
    store = opened(source)
    fill(store, 120)
    store.close(1000)
    source.flip(segment_paths(source)[1], 3000)
    report: BackupReport = done(back_up(source, backup, 5000))
    (first, last) = report.damage[0]
    assert first <= report.manifest.files[1].base + 3000 < last
    assert records(restored(backup)) == records(source)


@pytest.mark.parametrize("harm", ["flip", "delete", "cut", "manifest", "no manifest"])
def test_a_damaged_backup_is_refused_and_leaves_no_log_behind(harm: str) -> None:
    source, backup = SimDisk(), SimDisk()
    fill(opened(source), 120)
    done(back_up(source, backup, 5000))
    path = segment_paths(backup)[1]
    if harm == "flip":
        backup.flip(path, 3000)
    elif harm == "delete":
        backup.delete(path)
    elif harm == "cut":
        backup.put(path, backup.read(path)[:-1])
    elif harm == "manifest":
        backup.flip(MANIFEST, 40)
    else:
        backup.delete(MANIFEST)
    target = SimDisk()
    with pytest.raises(DataFolderUnusable):
        done(restore(backup, target))
    assert segment_paths(target) == []


def test_a_folder_that_has_a_log_is_not_restored_into() -> None:
    source, backup = SimDisk(), SimDisk()
    fill(opened(source), 20)
    done(back_up(source, backup, 5000))
    before = records(source)
    with pytest.raises(DataFolderUnusable, match="a log in the data folder already"):
        done(restore(backup, source))
    assert records(source) == before


@pytest.mark.parametrize("seed", range(40))
def test_power_lost_during_a_backup_leaves_the_one_before_or_the_new_one(seed: int) -> None:
    rng = random.Random(seed)
    source, backup = SimDisk(), SimDisk(seed)
    store = opened(source)
    fill(store, 60)
    first: BackupReport = done(back_up(source, backup, 5000))
    before = records(source)
    fill(store, rng.randrange(1, 90))
    backup.cut_power(rng.choice(("pwrite", "sync", "replace", "sync_names")), rng.randrange(6))
    try:
        done(back_up(source, backup, 6000))
        whole = True
    except PowerCut:
        whole = False
    backup.lose_power()
    manifest = read_manifest(backup)
    assert isinstance(manifest, Manifest)
    if manifest == first.manifest:
        assert not whole
        assert records(restored(backup)) == before
    else:
        assert records(restored(backup)) == records(source)
