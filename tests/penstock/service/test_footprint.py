from __future__ import annotations

import mmap
import os

from penstock.service import descriptors, footprint


def test_the_figures_are_those_of_this_process() -> None:
    figures = footprint.read()
    assert figures["process_max_fds"] == descriptors.limit()
    assert 1 << 20 < figures["process_resident_memory_bytes"] < 1 << 36
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    assert footprint.read()["process_open_fds"] == figures["process_open_fds"] + 3
    for one in opened:
        os.close(one)


def test_memory_that_is_taken_shows() -> None:
    before = footprint.read()["process_resident_memory_bytes"]
    with mmap.mmap(-1, 64 << 20) as taken:  # the heap may have as much to spare
        taken.write(b"x" * len(taken))
        assert footprint.read()["process_resident_memory_bytes"] > before + (48 << 20)
