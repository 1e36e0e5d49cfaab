"""Bugs of the store that somebody would write, each planted and caught.

A plant replaces one function of the store. The named test, which passes on the sound store in its own file, must fail
with the plant. A plant that survives means that the test does not test what its name says. ``CATALOGUE`` gives each
its number in the project's list of likely bugs.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import zlib
from array import array
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.kernel.frozen import Table
from broker.lineage.owner import LogOwner
from broker.store import bulk, frames, merging, message_store, recovery, scan, state
from broker.store.bulk import LongReads
from broker.store.commit_log import CommitLog
from broker.store.destinations import Destination
from broker.store.disk import RealDisk, RealFile
from broker.store.index_chunk import KEY, ChunkReader, Sealed
from broker.store.merging import Merging, next_merge
from broker.store.message_store import MessageStore
from broker.store.queue_index import _PIECE, ENTRY20, Piece, Queue, QueueIndex
from broker.store.retention import segments_to_drop
from broker.store.rows import packed_table
from broker.store.sealing import Sealing
from broker.store.segment import Segment, storage_error
from broker.store.snapshot import Snapshot
from broker.store.writing import Writing
from penstock.errors import StorageFull
from penstock.protocol.message import FRAME_HEAD_BYTES, RECORD_HEAD
from penstock.protocol.runs import Run
from tests.broker.kernel import test_frozen
from tests.broker.lineage import test_owner as owner_tests
from tests.broker.store import (
    test_bulk,
    test_commit_log,
    test_disk,
    test_frames,
    test_merging,
    test_message_store,
    test_queue_index,
    test_reading,
    test_recovery,
    test_scan,
    test_sealing,
    test_writing,
)
from tests.properties import test_store_model
from tests.simulation.disk import SimDisk

CHOOSE = bulk.choose


class Plant(NamedTuple):
    """``owner.name`` becomes ``bug``; ``killer`` must notice."""

    catalogue: str
    owner: object
    name: str
    bug: Callable[..., Any]
    killer: Callable[..., Any]


# ------------------------------------------------------------ the bugs


def sync_that_does_nothing(log: CommitLog) -> None:
    log._syncing = []


def sync_that_is_tried_again(log: CommitLog) -> None:
    for segment in log._syncing:
        try:
            segment.file.sync()
        except OSError:
            segment.file.sync()
    log._syncing = []


def what_a_failed_sync_left_is_taken_for_written(segments: list[Segment], start: int, end: int) -> None:
    pass


def sync_of_the_active_segment_only(log: CommitLog) -> None:
    if log.failed is not None:
        raise log.failed
    log.active.file.sync()
    log._syncing = []


sound_append = CommitLog.append


def append_that_counts_as_durable(log: CommitLog, data: bytes) -> int:
    position = sound_append(log, data)
    log.durable = log.committed = log.end
    return position


def durable_up_to_the_end(store: MessageStore, point: int) -> None:
    store._log.mark_durable(store._log.end)


def good_by_its_body(data: bytes, at: int, size: int, position: int) -> bool:
    head = RECORD_HEAD.unpack_from(data, at + FRAME_HEAD_BYTES)
    start = at + FRAME_HEAD_BYTES + RECORD_HEAD.size
    return int(head[2]) == zlib.crc32(data[start : start + head[14]]) & 0x7FFFFFFF


def good_by_its_length(data: bytes, at: int, size: int, position: int) -> bool:
    return at + size <= len(data)


def good_as_the_index_says(data: bytes, base: int, places: Any) -> list[Any]:
    return list(places)


def good_wherever_it_stands(data: bytes, at: int, size: int, position: int) -> bool:
    if size < frames.FRAME_BYTES_MIN or at + size > len(data):
        return False
    return int.from_bytes(data[at : at + 4], "big") == frames.crc32c(data[at + 4 : at + size])


def zeros_are_a_blank(data: bytes) -> int:
    length = frames.read_head(data).length if len(data) >= FRAME_HEAD_BYTES else 0
    return length or 1 << 30


def what_is_removed_is_not_noted(store: MessageStore, position: int) -> None:
    pass


def whatever_is_newer_is_garbage(head: bytes, room: int) -> int:
    return 0


def nothing_is_ever_taken_away(disk: RealDisk) -> None:
    pass


def the_log_ends_at_the_first_bad_place(one: scan.Scan, number: int, at: int) -> None:
    return None


def every_bad_place_is_rot(one: scan.Scan, number: int, at: int) -> int | None:
    for segment in one._segments[number:]:
        place = at + 1 if segment is one._segments[number] else 0
        for position, _ in one._scattered(segment, scan.Window(segment), place):
            return position
    return None


def names_are_not_synced(folder: Path) -> None:
    pass


def a_short_write_is_taken_for_whole(file: RealFile, data: bytes, at: int) -> None:
    os.pwrite(file._descriptor, data, at)


def a_failed_write_stays(log: CommitLog, segment: Segment, position: int, error: OSError) -> Exception:
    return log._latched(storage_error(error))


def a_failed_write_is_forgotten(log: CommitLog, error: Any) -> Any:
    return error


def the_lock_is_not_taken(disk: RealDisk, *folders: str) -> None:
    disk.root.mkdir(parents=True, exist_ok=True)


def a_folder_is_never_locked(disk: Any, *folders: str) -> None:
    pass


def a_light_queue_begins_at_zero(index: QueueIndex, key: str, first: int = 0) -> Queue:
    if key not in index._queues:
        index._queues[key] = Queue(key, 0)
    return index._queues[key]


def no_holes(write: Writing, queue: Queue, offset: int, position: int) -> None:
    pass


sound_append_urgent = Writing._append_urgent


def a_batch_is_stored_one_by_one(
    write: Writing, runs: list[Run], destinations: list[Destination], now_ms: int, urgent: bool
) -> None:
    for run, destination in zip(runs, destinations, strict=True):
        sound_append_urgent(write, [run], [destination], now_ms, urgent)


def no_room_is_kept_aside(log: CommitLog) -> None:
    pass


def readers_do_not_count(*arguments: Any) -> Any:
    return segments_to_drop(*arguments[:3], None, *arguments[4:])


def unsealed_segments_may_go(store: MessageStore) -> int:
    return store.written


def removed_without_a_word(owner: LogOwner, before: int, now_ms: int) -> None:
    raise StorageFull("no room for a word")


def every_start_seals(store: MessageStore, now_ms: int) -> None:
    store.sync_all()
    store._seal_end(now_ms)


def settle_vouches_first(store: MessageStore, now_ms: int) -> None:
    store.mark_durable(store.written)
    store.mark_committed(store.written)
    store.seal(now_ms)
    store.sync_all()
    store.take_readable()


def no_seal(store: MessageStore, now_ms: int) -> None:
    pass


def readable_out_of_order(index: QueueIndex, queue: Queue, entry: bytes, at_once: bool) -> None:
    queue.tail = queue.tail + entry
    if at_once:
        queue.readable = queue.next
        index._fresh[queue.key] = None
    else:
        queue.waits = True
        index._waiting.append(queue)


def any_piece_precedes(queue: Queue, piece: Any) -> bool:
    queue.pieces = _PIECE.pack(*piece) + queue.pieces
    return True


def unchecked_chunk(reader: ChunkReader) -> None:
    """Nothing is looked at."""


def the_log_is_no_witness(segments: Sequence[Segment], position: int) -> int:
    return 0


def a_plan_of_what_is_open_later(sealing: Sealing, now_ms: int) -> None:
    if sealing._plans and sealing._plans[0].position <= sealing._log.durable:
        plan = sealing._plans.popleft()
        open_now = list(sealing._index)
        kept = [one for some in plan.ends_in_slices(100) for one in some if one[0] in open_now]
        plan._ended, plan._end_offsets = [queue for queue, _ in kept], array("Q", [end for _, end in kept])
        list(sealing._seal(plan))


def a_state_of_later(sealing: Sealing, plan: Snapshot) -> Iterator[None]:
    log = sealing._log
    later = Snapshot(log.end, log.last_ms, sealing._folds.freeze(), sealing._index, sealing.keyframes)
    plan._data = later.finish()
    return sound_seal(sealing, plan)


sound_seal = Sealing._seal


def a_plan_before_it_is_durable(sealing: Sealing, now_ms: int) -> None:
    if sealing._plans:
        list(sealing._seal(sealing._plans.popleft()))


def times_as_the_clock_says(
    write: Writing, runs: list[Run], destinations: list[Destination], now_ms: int, urgent: bool
) -> None:
    write._log.last_ms = 0
    sound_append_next(write, runs, destinations, now_ms, urgent)


sound_append_next = Writing._append_next


def light_queues_count_on(index: QueueIndex, base: int, opened_before: int) -> int:
    return 0


sound_move = QueueIndex.move_light_queues


def what_has_moved_is_told_at_once(index: QueueIndex, base: int, opened_before: int) -> int:
    longest = sound_move(index, base, opened_before)
    index.holds_moved = False
    return longest


def a_state_is_as_good_as_any(store: MessageStore) -> list[tuple[int, int]]:
    return []


def the_log_grows_when_it_likes(write: Writing, now_ms: int) -> None:
    pass


def what_stands_before_damage_moves_too(sealing: Sealing, position: int) -> None:
    """It is sealed with the rest."""


def spans_unchecked(reads: LongReads, span: Any, positions: Any, sizes: Any, start: int, end: int) -> None:
    """All of it is good."""


def a_table_that_is_not_frozen(table: Table[Any], row: Callable[[str, Any], list[Any]]) -> Iterator[bytes]:
    return packed_table(table, len(table), lambda key: row(key, table[key]), 2000)


def a_queue_as_it_is_later(queue: Queue, position: int, low: int = 0) -> int:
    return len(queue.tail) // ENTRY20.size


def no_keyframe(snapshot: Sequence[bytes], base: int, now_ms: int, part_bytes: int) -> Iterator[bytes]:
    return iter(())


def a_cut_that_forgets_to_truncate(segment: Segment, position: int) -> None:
    segment.reserved = position - segment.base


def tags_of_the_first_entries(entries: Any, tags: frozenset[int], count_max: int, bytes_max: int) -> Any:
    return CHOOSE(entries[:63] if tags else entries, tags, count_max, bytes_max)[0], len(entries)


def a_merge_over_a_segments_border(chunks: Sequence[Sealed], bases: Sequence[int], damaged: frozenset[int]) -> Any:
    return next_merge(chunks, bases[:1], damaged)


def the_newest_chunk_is_merged_too(chunks: Sequence[Sealed], bases: Sequence[int], damaged: frozenset[int]) -> Any:
    return next_merge([*chunks, chunks[-1]], bases, damaged)


def keys_of_one_source_behind_those_of_the_other(readers: Sequence[ChunkReader]) -> Iterator[bytes]:
    for reader in readers:
        yield reader.take(reader.keys * KEY.size)


sound_replace = SimDisk.replace


def a_replacement_that_is_not_synced(disk: SimDisk, path: str, pieces: Any, head: Any = None) -> Iterator[None]:
    whole = list(pieces)
    return sound_replace(disk, path, [head(), *whole[1:]] if head else whole)


def pieces_are_joined_whatever_lies_between(queue: Queue, joined: Piece, sources: Container[int]) -> None:
    first = queue._holder(joined.base)
    last = queue._holder(joined.base + joined.entries - 1) + 1
    if first >= 0:
        queue.pieces = queue.pieces[: first * 28] + _PIECE.pack(*joined) + queue.pieces[last * 28 :]


def sources_go_before_anybody_is_pointed_elsewhere(merge: Merging, sources: list[Sealed], level: int) -> Iterator[None]:
    for step in sound_carry_out(merge, sources, level):
        yield step
        if merge._counts:
            for source in sources:
                merge._files.remove(source.number)


sound_carry_out = Merging._carry_out

store_tests, log_tests, recovery_tests = test_message_store, test_commit_log, test_recovery

PLANTS = [
    Plant("B1", CommitLog, "sync", sync_that_does_nothing, test_store_model.drive_the_store),
    Plant("B1", CommitLog, "sync", sync_of_the_active_segment_only, log_tests.test_both_segments_of_a_roll_are_synced),
    Plant("B2", CommitLog, "sync", sync_that_is_tried_again, log_tests.test_a_failed_sync_is_never_tried_again),
    Plant(
        "B2",
        recovery,
        "_write_again",
        what_a_failed_sync_left_is_taken_for_written,
        recovery_tests.test_what_a_failed_sync_left_unwritten_is_written_by_the_next_start,
    ),
    Plant(
        "B3",
        CommitLog,
        "append",
        append_that_counts_as_durable,
        test_sealing.test_nothing_is_sealed_before_it_is_durable,
    ),
    Plant(
        "B3",
        MessageStore,
        "mark_durable",
        durable_up_to_the_end,
        store_tests.test_a_sync_covers_only_what_was_appended_before_its_point,
    ),
    Plant("B4", frames, "good_within", good_by_its_body, test_frames.test_every_flipped_bit_makes_a_frame_bad),
    Plant(
        "B5",
        scan,
        "good_within",
        good_by_its_length,
        test_scan.test_an_unsynced_batch_with_its_first_frame_torn_is_a_torn_tail,
    ),
    Plant(
        "B5",
        bulk,
        "good_frames",
        good_as_the_index_says,
        test_reading.test_a_rotten_frame_among_neighbours_is_passed_over_alone,
    ),
    Plant(
        "label",
        MessageStore,
        "_note_beginning",
        what_is_removed_is_not_noted,
        recovery_tests.test_on_a_full_disk_retention_makes_room_first_and_then_says_where_the_log_begins,
    ),
    Plant(
        "R14",
        LogOwner,
        "_say_removed",
        removed_without_a_word,
        owner_tests.test_removal_is_in_the_log_before_a_segment_goes_whenever_the_power_is_cut,
    ),
    Plant(
        "R13",
        MessageStore,
        "settle",
        every_start_seals,
        owner_tests.test_a_store_that_nobody_owns_appends_nothing_however_time_passes,
    ),
    Plant(
        "newer",
        scan,
        "newer_length",
        whatever_is_newer_is_garbage,
        test_scan.test_a_frame_of_a_newer_format_refuses_the_log,
    ),
    Plant(
        "lost",
        RealDisk,
        "_check",
        nothing_is_ever_taken_away,
        test_disk.test_no_name_changes_in_a_folder_that_stands_in_place_of_the_locked_one,
    ),
    Plant("B6", scan, "blank_length", zeros_are_a_blank, test_scan.test_reserved_zeros_end_the_log),
    Plant(
        "B7",
        scan.Scan,
        "_after_damage",
        the_log_ends_at_the_first_bad_place,
        recovery_tests.test_rot_in_the_middle_is_reported_and_never_cut_and_the_rest_stays_readable,
    ),
    Plant(
        "B7",
        scan.Scan,
        "_after_damage",
        every_bad_place_is_rot,
        test_scan.test_an_unsynced_batch_with_its_first_frame_torn_is_a_torn_tail,
    ),
    Plant(
        "B7",
        MessageStore,
        "seal",
        no_seal,
        recovery_tests.test_rot_in_the_last_batch_is_told_from_a_torn_tail_by_the_seal,
    ),
    Plant(
        "B8",
        RealDisk,
        "_sync_folder",
        staticmethod(names_are_not_synced),
        test_disk.test_new_and_removed_names_are_made_durable_and_replaced_ones_are_not,
    ),
    Plant("B9", RealFile, "pwrite", a_short_write_is_taken_for_whole, test_disk.test_a_short_write_is_carried_on),
    Plant(
        "B10",
        CommitLog,
        "_cut_away",
        a_failed_write_stays,
        store_tests.test_a_refused_batch_never_turns_up_even_if_the_disk_wrote_half_of_it,
    ),
    Plant(
        "B10",
        Segment,
        "cut",
        a_cut_that_forgets_to_truncate,
        store_tests.test_a_shorter_batch_after_a_refused_one_does_not_uncover_its_rest,
    ),
    Plant("B10", CommitLog, "_latched", a_failed_write_is_forgotten, store_tests.test_a_failed_write_ends_all_writing),
    Plant(
        "B11",
        Sealing,
        "_seal",
        a_state_of_later,
        test_sealing.test_a_checkpoint_holds_the_state_at_its_own_position,
    ),
    Plant(
        "B11", Sealing, "step", a_plan_before_it_is_durable, test_sealing.test_nothing_is_sealed_before_it_is_durable
    ),
    Plant(
        "B11",
        ChunkReader,
        "finish",
        unchecked_chunk,
        recovery_tests.test_harm_to_any_one_derived_file_changes_nothing,
    ),
    Plant(
        "B11",
        Sealing,
        "step",
        a_plan_of_what_is_open_later,
        test_sealing.test_a_queue_that_ended_before_its_entries_were_sealed_lives_again_if_its_end_is_lost,
    ),
    Plant(
        "B11", recovery, "witness_at", the_log_is_no_witness, test_sealing.test_only_the_unsealed_log_is_read_at_start
    ),
    Plant(
        "B12",
        QueueIndex,
        "ensure",
        a_light_queue_begins_at_zero,
        store_tests.test_a_light_queue_that_is_opened_again_never_reuses_an_offset,
    ),
    Plant(
        "B12",
        Queue,
        "precede",
        any_piece_precedes,
        store_tests.test_a_light_queue_that_was_opened_again_keeps_its_beginning_over_a_restart,
    ),
    Plant(
        "B13",
        Writing,
        "_add_holes",
        no_holes,
        recovery_tests.test_rot_in_the_middle_is_reported_and_never_cut_and_the_rest_stays_readable,
    ),
    Plant(
        "B1",
        MessageStore,
        "settle",
        settle_vouches_first,
        recovery_tests.test_recovery_vouches_for_nothing_that_it_has_not_synced,
    ),
    Plant(
        "B43",
        Writing,
        "_append_urgent",
        a_batch_is_stored_one_by_one,
        test_writing.test_a_batch_is_stored_whole_or_not_at_all_whichever_call_finds_no_room,
    ),
    Plant(
        "B46",
        message_store,
        "segments_to_drop",
        readers_do_not_count,
        store_tests.test_retention_by_age_waits_for_the_slowest_reader,
    ),
    Plant(
        "B46",
        MessageStore,
        "_safe",
        property(unsealed_segments_may_go),
        store_tests.test_retention_never_takes_what_is_not_sealed_yet,
    ),
    Plant(
        "B13",
        QueueIndex,
        "move_light_queues",
        light_queues_count_on,
        recovery_tests.test_after_rot_no_offset_of_a_light_queue_means_another_message,
    ),
    Plant(
        "B13",
        Writing,
        "grow",
        the_log_grows_when_it_likes,
        recovery_tests.test_what_a_full_disk_kept_from_growing_behind_damage_grows_before_anything_else_is_stored,
    ),
    Plant(
        "B13",
        QueueIndex,
        "move_light_queues",
        what_has_moved_is_told_at_once,
        recovery_tests.test_on_a_full_disk_what_has_moved_behind_damage_is_told_to_nobody_before_there_is_room,
    ),
    Plant(
        "B13",
        MessageStore,
        "take_passed",
        a_state_is_as_good_as_any,
        recovery_tests.test_a_keyframe_from_before_damage_was_known_is_not_taken_for_what_is_behind_it,
    ),
    Plant(
        "rot",
        Sealing,
        "seal_before",
        what_stands_before_damage_moves_too,
        recovery_tests.test_what_stands_before_the_damage_keeps_its_offsets,
    ),
    Plant(
        "rot",
        LongReads,
        "_good",
        spans_unchecked,
        test_bulk.test_a_rotten_frame_in_a_long_read_is_passed_over_alone,
    ),
    Plant(
        "B11",
        Table,
        "freeze",
        a_table_that_is_not_frozen,
        test_frozen.test_a_value_is_copied_once_and_only_while_a_snapshot_needs_it,
    ),
    Plant(
        "B11",
        Queue,
        "entries_before",
        a_queue_as_it_is_later,
        test_sealing.test_a_checkpoint_knows_no_message_that_came_behind_it,
    ),
    Plant(
        "B46",
        state,
        "keyframe_records",
        no_keyframe,
        recovery_tests.test_every_segment_has_a_keyframe,
    ),
    Plant(
        "misdirected",
        scan,
        "good_within",
        good_wherever_it_stands,
        test_scan.test_a_frame_that_was_written_to_the_wrong_place_is_damage,
    ),
    Plant(
        "lock", RealDisk, "lock", the_lock_is_not_taken, test_disk.test_a_second_broker_is_refused_by_the_folders_name
    ),
    Plant(
        "full",
        CommitLog,
        "keep_emergency_room",
        no_room_is_kept_aside,
        store_tests.test_offset_commits_still_work_on_a_full_disk,
    ),
    Plant(
        "merge",
        merging,
        "next_merge",
        a_merge_over_a_segments_border,
        test_merging.test_a_finished_segment_has_one_chunk,
    ),
    Plant(
        "merge",
        merging,
        "next_merge",
        the_newest_chunk_is_merged_too,
        test_merging.test_a_start_at_the_older_checkpoint_finds_a_chunk_that_ends_there,
    ),
    Plant(
        "merge",
        merging,
        "_keys",
        keys_of_one_source_behind_those_of_the_other,
        test_merging.test_messages_are_found_by_key_as_before,
    ),
    Plant(
        "merge",
        SimDisk,
        "replace",
        a_replacement_that_is_not_synced,
        test_merging.test_a_power_cut_at_any_moment_loses_nothing_and_what_was_merged_is_whole,
    ),
    Plant(
        "merge",
        Queue,
        "join",
        pieces_are_joined_whatever_lies_between,
        test_queue_index.test_pieces_of_an_earlier_queue_or_of_other_chunks_are_not_joined,
    ),
    Plant(
        "merge",
        Merging,
        "_carry_out",
        sources_go_before_anybody_is_pointed_elsewhere,
        test_merging.test_every_queue_reads_as_before_at_every_step_of_a_merge,
    ),
    Plant(
        "merge",
        ChunkReader,
        "finish",
        unchecked_chunk,
        test_merging.test_a_flipped_bit_anywhere_before_the_entries_of_a_source_ends_only_the_merge,
    ),
    Plant("level", QueueIndex, "add", readable_out_of_order, test_queue_index.test_entries_become_readable_in_order),
    Plant(
        "clock",
        Writing,
        "_append_next",
        times_as_the_clock_says,
        store_tests.test_store_times_never_go_back_so_that_a_search_by_time_works,
    ),
    Plant(
        "tags",
        bulk,
        "choose",
        tags_of_the_first_entries,
        test_reading.test_the_vectorised_tag_filter_agrees_with_the_plain_one,
    ),
]


@contextlib.contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """The store with one bug."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plant.owner, plant.name, plant.bug)
        yield


def runs_of(killer: Callable[..., Any], folder: Path) -> Iterator[dict[str, Any]]:
    """Arguments for each run of a test: its parameters, and the fixtures that the store's tests use."""
    fixed: dict[str, Any] = {}
    if "tmp_path" in inspect.signature(killer).parameters:
        fixed["tmp_path"] = folder
    choices: list[dict[str, Any]] = [{}]
    for mark in getattr(killer, "pytestmark", []):
        if mark.name == "parametrize":
            name, values = mark.args[:2]
            choices = [{**one, name: value} for one in choices for value in values]
    for choice in choices:
        yield fixed | choice


def run(killer: Callable[..., Any], folder: Path) -> None:
    """Runs a test function by hand."""
    for number, arguments in enumerate(runs_of(killer, folder)):
        if "tmp_path" in arguments:
            arguments["tmp_path"] = folder / str(number)
            arguments["tmp_path"].mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(merging, "DIRECTORIES_BYTES_MIN", 8)  # as a fixture of the tests of merging says
            if "monkeypatch" in inspect.signature(killer).parameters:
                arguments["monkeypatch"] = patch
            killer(**arguments)


def name_of(plant: Plant) -> str:
    return f"{plant.catalogue}-{getattr(plant.bug, '__name__', plant.name)}"


@pytest.mark.parametrize("plant", PLANTS, ids=name_of)
def test_a_planted_bug_is_caught_by_its_test(plant: Plant, tmp_path: Path) -> None:
    with planted(plant), pytest.raises(BaseException) as caught:
        run(plant.killer, tmp_path)
    assert not isinstance(caught.value, (KeyboardInterrupt, TypeError, NameError)), "the plant or its call is broken"


@pytest.mark.long
def test_each_killer_passes_on_the_sound_store(tmp_path: Path) -> None:
    killers = {plant.killer: None for plant in PLANTS if plant.killer is not test_store_model.drive_the_store}
    for number, killer in enumerate(killers):
        folder = tmp_path / f"killer{number}"
        folder.mkdir()
        run(killer, folder)


def test_at_least_fifteen_bugs_of_the_catalogue_are_planted() -> None:
    assert len([plant for plant in PLANTS if plant.catalogue.startswith("B")]) >= 15
