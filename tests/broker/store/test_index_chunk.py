"""Index chunks: what goes in comes out, and damage anywhere makes a chunk worthless."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store import index_chunk
from broker.store.disk import RealDisk
from broker.store.index_chunk import (
    FOLDER,
    HEAD,
    KEY,
    KEY_DTYPE,
    OFFSETS_END,
    OPEN_FILES_MAX,
    RUNS_AT_ONCE,
    ChunkFiles,
    ChunkParts,
    ChunkReader,
    chunk_path,
    pack_head,
)
from broker.store.queue_index import ENTRY20, ENTRY_BYTES, Queue, QueueIndex
from penstock.errors import Damaged
from tests.broker.store.store_rig import ReadChunk, read_chunk
from tests.simulation.disk import SimDisk


def queue_with(key: str, first: int, count: int) -> Queue:
    index = QueueIndex()
    queue = index.ensure(key, first)
    for number in range(count):
        index.add(queue, ENTRY20.pack(1000 + number, 50, number), True)
    return queue


def small_chunk(start: int = 100, end: int = 900) -> bytes:
    keys = np.array([(5, 110, 10, 2), (5, 160, 0, 1), (9, 130, 0, 1)], KEY_DTYPE)
    parts = ChunkParts()
    parts.add([(queue_with("a:0", 0, 3), 2)])
    parts.add([(queue_with("~f", 77, 1), 1)])
    return b"".join(parts.pieces(start, end, 4711, keys))


def decoded(data: bytes, number: int = 100) -> ReadChunk | None:
    """What is read of a chunk file with that number and these bytes."""
    disk = SimDisk()
    disk.put(chunk_path(number), data)
    return read_chunk(disk, number)


def positions(files: ChunkFiles, wanted: int) -> list[int]:
    """Positions of the records whose key has a hash."""
    return list(chain.from_iterable(files.find_key(100, wanted)))


def test_the_directory_says_where_each_queues_entries_are() -> None:
    chunk = decoded(small_chunk())
    assert chunk is not None
    assert (*chunk.sealed, chunk.witness) == (100, 100, 900, len(small_chunk()), 16, 4711)
    assert [tuple(row) for row in chunk.rows] == [("a:0", 0, 2, 0), ("~f", 77, 1, 40)]


def test_damage_anywhere_makes_a_chunk_worthless() -> None:
    data = small_chunk()
    for at in range(len(data)):
        rotten = bytearray(data)
        rotten[at] ^= 0x10
        assert decoded(bytes(rotten)) is None, f"byte {at}"
    for size in range(len(data)):
        assert decoded(data[:size]) is None, f"cut to {size}"
    assert decoded(data + b"x") is None


@pytest.mark.parametrize(
    "row",
    [
        (b"a:0", 0, 2, 0),
        (7, 0, 2, 0),
        ("a:0", -1, 2, 0),
        ("a:0", OFFSETS_END, 2, 0),
        ("a:0", 1.5, 2, 0),
        ("a:0", None, 2, 0),
        ("a:0", 0, True, 0),
        ("a:0", 0, -2, 0),
        ("a:0", 0, 2, -20),
        ("a:0", 0, 2, 1),
        ("a:0", 0, 3, 0),
        ("a:0", 0, 2),
    ],
)
def test_what_is_no_row_is_damage_as_soon_as_it_is_read(row: Sequence[object]) -> None:
    directory = msgpack.packb([("A:0", 0, 1, 0), row])
    assert isinstance(directory, bytes)
    disk = SimDisk()
    disk.put(chunk_path(100), bytes(4) + pack_head(100, 900, 7, len(directory), 40, 0) + directory + bytes(40))
    with contextlib.closing(ChunkReader(disk, 100)) as reader:
        rows = reader.rows()
        assert next(rows).key == "A:0"
        with pytest.raises(Damaged, match="has no directory"):
            next(rows)


def test_random_bytes_are_no_chunk() -> None:
    rng = random.Random(1)
    assert all(decoded(rng.randbytes(rng.randrange(300))) is None for _ in range(300))


def test_a_chunk_under_another_name_is_worthless() -> None:
    assert decoded(small_chunk(), 0) is None


def test_entries_and_keys_are_read_from_the_file() -> None:
    disk = SimDisk()
    disk.put(chunk_path(100), small_chunk())
    files = ChunkFiles(disk)
    assert files.entries(100, 40, 20) == ENTRY20.pack(1000, 50, 0)
    assert [positions(files, wanted) for wanted in (5, 9, 7)] == [[110, 120, 160], [130], []]
    files.close_all()


@given(st.lists(st.integers(0, 12), max_size=40))
def test_a_key_is_found_wherever_it_stands_among_the_others(hashes: list[int]) -> None:
    keys = np.array(sorted((key, 1000 + number, 0, 1) for number, key in enumerate(hashes)), KEY_DTYPE)
    disk = SimDisk()
    disk.put(chunk_path(100), b"".join(ChunkParts().pieces(100, 900, 4711, keys)))
    files = ChunkFiles(disk)
    for wanted in range(14):
        assert positions(files, wanted) == [1000 + number for number, key in enumerate(hashes) if key == wanted]
    files.close_all()


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 9))
def test_the_runs_of_a_key_come_newest_first_from_any_of_them_on(hashes: list[int], block: int) -> None:
    keys = np.array(sorted((key, 1000 + 10 * number, 3, 2) for number, key in enumerate(hashes)), KEY_DTYPE)
    disk = SimDisk()
    disk.put(chunk_path(100), b"".join(ChunkParts().pieces(100, 900, 4711, keys)))
    files = ChunkFiles(disk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_chunk, "RUNS_AT_ONCE", block)
        for wanted in range(4):
            runs = files.find_key(100, wanted)
            firsts = [1000 + 10 * number for number, key in enumerate(hashes) if key == wanted]
            assert list(runs) == [range(first, first + 6, 3) for first in firsts]
            for count in range(len(runs) + 1):
                assert list(runs.newest_first(count)) == list(reversed(list(runs)[:count]))
    files.close_all()


def test_of_a_key_that_very_many_records_have_only_the_rows_that_are_looked_at_are_read() -> None:
    count = 20_000
    keys = np.zeros(count, KEY_DTYPE)
    keys["hash"], keys["first"], keys["count"] = 5, np.arange(count) * 100, 1
    disk = SimDisk()
    disk.put(chunk_path(100), b"".join(ChunkParts().pieces(100, 900, 4711, keys)))
    files = ChunkFiles(disk)
    runs = files.find_key(100, 5)
    before = bisect_left(runs, 700_000, key=lambda run: run.start)
    assert (len(runs), before, next(runs.newest_first(before))) == (count, 7000, range(699_900, 699_901))
    assert disk.bytes_read < (RUNS_AT_ONCE + 100) * KEY.size
    files.close_all()


def test_the_entries_of_a_long_queue_come_in_pieces_and_are_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_chunk, "PIECE_BYTES", 100)
    queues = [queue_with("a:0", 0, 4), queue_with("b:0", 0, 12), queue_with("c:0", 0, 5), queue_with("d:0", 0, 1)]
    parts = ChunkParts()
    parts.add([(queues[0], 4), (queues[1], 11), (queues[2], 5), (queues[3], 1)])
    pieces = parts.pieces(100, 900, 4711, np.array([], KEY_DTYPE))
    assert max(map(len, pieces)) == 100
    disk = SimDisk()
    disk.put(chunk_path(100), b"".join(pieces))
    chunk = read_chunk(disk, 100)
    assert chunk is not None
    for queue, row in zip(queues, chunk.rows, strict=True):
        size = row.entries * ENTRY_BYTES
        assert ChunkFiles(disk).entries(100, row.place, size) == bytes(queue.tail[:size])


def test_only_so_many_chunk_files_are_open_at_a_time() -> None:
    disk = SimDisk()
    files = ChunkFiles(disk)
    for number in range(OPEN_FILES_MAX + 5):
        disk.put(chunk_path(number), small_chunk(number, number + 1))
        assert files.entries(number, 0, 20) == ENTRY20.pack(1000, 50, 0)
    assert len(files._open) == OPEN_FILES_MAX
    files.close_all()


@pytest.mark.parametrize("harm", ["deleted", "shortened", "unreadable"])
def test_harm_done_to_a_chunk_while_it_is_in_use_is_an_error_that_says_what_to_do(harm: str) -> None:
    disk = SimDisk()
    disk.put(chunk_path(100), small_chunk())
    files = ChunkFiles(disk)
    if harm == "deleted":
        disk.delete(chunk_path(100))
    elif harm == "shortened":
        disk.put(chunk_path(100), small_chunk()[:60])
    else:
        disk.fail("pread", errno.EIO)
    with pytest.raises(Damaged, match="restart the broker"):
        files.find_key(100, 5)


@pytest.mark.parametrize("at", range(32, HEAD.size))
def test_harm_done_to_the_lengths_in_a_head_is_damage_and_leaves_no_file_open(tmp_path: Path, at: int) -> None:
    disk = RealDisk(tmp_path)
    disk.make_folder(FOLDER)
    harmed = bytearray(small_chunk())
    harmed[at] ^= 0x80
    (tmp_path / chunk_path(100)).write_bytes(harmed)
    files = ChunkFiles(disk)
    for _ in range(2):
        with pytest.raises(Damaged, match="restart the broker"):
            files.find_key(100, 5)
        with pytest.raises(Damaged, match="restart the broker"):
            files.entries(100, 0, 20)
    opened = [os.readlink(f"/proc/self/fd/{one.name}") for one in os.scandir("/proc/self/fd") if one.is_symlink()]
    assert not [path for path in opened if path.startswith(str(tmp_path))]
