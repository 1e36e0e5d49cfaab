"""Bugs of copies of the log, as the design of replication numbers them, each planted and caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.replica.follower_log import FollowerLog
from broker.replica.repair import Repair
from broker.replica.resync import CLOSE_BYTES, Resync
from broker.store import recovery, writing
from broker.store.commit_log import CommitLog
from broker.store.message_store import MessageStore
from broker.store.queue_index import QueueIndex
from broker.store.raw import Part, parts_of, split
from tests.broker.lineage import test_owner as owner_tests
from tests.broker.replica import test_follower_log as log_tests
from tests.broker.replica import test_repair as repair_tests
from tests.broker.replica import test_resync as resync_tests
from tests.broker.replica.pair import LARGER, SMALLER
from tests.broker.store import test_following as following_tests

sound_add, sound_receive, sound_tick = QueueIndex.add, CommitLog.receive, MessageStore.tick


def cut_whatever_is_committed(self: FollowerLog, position: int) -> None:
    self._log.committed = min(self._log.committed, position)
    self._store.following.applied = min(self._store.following.applied, position)
    self._store.following.cut(position)


def readable_as_its_level_says(self: QueueIndex, queue: Any, entries: bytes, at_once: bool) -> None:
    self.reads_committed = False
    sound_add(self, queue, entries, at_once)


def sealed_as_far_as_this_disk_has_it(self: CommitLog) -> int:
    return self.durable


def taken_in_as_it_comes(self: FollowerLog, point: int) -> None:
    self._store.following.apply(self.end)
    self._store.mark_committed(min(point, self.end))


def damage_is_passed_over_by_this_copy(*arguments: Any) -> None:
    disk, store, log, segments, start, durable, _, on_progress = arguments
    recovery._replay(disk, store, log, segments, start, durable, 0, 1000, on_progress)


def retention_by_this_nodes_clock(self: MessageStore, now_ms: int, age_ms: int | None = None) -> None:
    sound_tick(self, now_ms, age_ms)
    removal = self.removal_due(now_ms)
    if removal is not None:
        self.remove_before(removal.end)


def whole_without_its_keyframe(self: Resync, committed: int) -> bool:
    return self.end >= committed - CLOSE_BYTES


def uncommitted_bytes_for_a_repair(self: Repair, stretch: Any, epoch: int) -> list[Part]:
    return [split(part, part.stop - part.start)[0] for part in parts_of(stretch.data, stretch.position)]


def segments_by_this_nodes_setting(self: CommitLog, frames: bytes) -> int:
    if len(frames) > self.room():
        self.roll(1)
    return sound_receive(self, frames)


def the_watermark_of_this_disk(self: writing.Writing, *arguments: Any) -> list[bytes]:
    committed, self._log.committed = self._log.committed, self._log.durable
    try:
        return sound_lay_out(self, *arguments)
    finally:
        self._log.committed = committed


sound_lay_out = writing.Writing._lay_out


def rolls_as_the_bytes_say() -> None:
    for settings in (LARGER, SMALLER):
        log_tests.test_a_follower_has_the_leaders_bytes_and_rolls_where_they_say(settings, 1 << 20)


AT_COMMIT = log_tests.test_nothing_is_taken_in_or_read_before_it_is_committed
SEALS = following_tests.test_a_copy_seals_and_checkpoints_no_more_than_it_has_and_is_committed
DAMAGE = following_tests.test_a_start_stops_before_damage_and_keeps_what_stands_behind_it
PLANTS: list[tuple[str, object, str, Any, Callable[[], None]]] = [
    ("R7", FollowerLog, "cut", cut_whatever_is_committed, log_tests.test_what_is_committed_is_never_cut),
    ("R8", QueueIndex, "add", readable_as_its_level_says, AT_COMMIT),
    ("R9", CommitLog, "settled", property(sealed_as_far_as_this_disk_has_it), SEALS),
    ("R10", FollowerLog, "commit", taken_in_as_it_comes, AT_COMMIT),
    ("R13", recovery, "_replay_copy", damage_is_passed_over_by_this_copy, DAMAGE),
    (
        "R14",
        MessageStore,
        "tick",
        retention_by_this_nodes_clock,
        owner_tests.test_the_stores_of_one_log_remove_the_same_by_its_records,
    ),
    (
        "R20",
        Resync,
        "is_whole",
        whole_without_its_keyframe,
        resync_tests.test_it_is_whole_only_with_its_first_keyframe_and_what_is_committed,
    ),
    (
        "R21",
        Repair,
        "_checked",
        uncommitted_bytes_for_a_repair,
        repair_tests.test_only_what_is_committed_is_asked_for_and_taken,
    ),
    ("R24", CommitLog, "receive", segments_by_this_nodes_setting, rolls_as_the_bytes_say),
    (
        "R25",
        writing.Writing,
        "_lay_out",
        the_watermark_of_this_disk,
        log_tests.test_every_frame_carries_what_is_committed_and_not_what_one_disk_has,
    ),
]


@pytest.mark.parametrize(
    ("number", "owner", "name", "bug", "killer"), PLANTS, ids=[f"{one[0]}-{one[2]}" for one in PLANTS]
)
def test_a_planted_bug_is_caught(
    number: str, owner: object, name: str, bug: Any, killer: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        killer()


def test_each_killer_passes_on_sound_copies() -> None:
    for killer in dict.fromkeys(one[-1] for one in PLANTS):
        killer()
