"""Requests that do not fit a segment, cut into parts: nothing is lost, moved or larger than it may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.messages.parts import cut_records, cut_runs
from broker.store.run_frames import frame_bytes
from penstock.errors import InvalidRequest
from penstock.protocol.message import FRAME_HEAD_BYTES, Message, encode_message, record_tail
from penstock.protocol.runs import Run

TAIL = record_tail(b"t", b"")
MOST = 1000


def record(size: int) -> bytes:
    return encode_message(Message("t", bytes(size)))


@given(st.lists(st.integers(0, 1500), min_size=1, max_size=30))
def test_records_are_cut_in_order_into_parts_that_fit_or_are_one_record(sizes: list[int]) -> None:
    records = [record(size) for size in sizes]
    parts = cut_records(b"".join(records), len(records), MOST)
    assert b"".join([part.body for part in parts]) == b"".join(records)
    assert [part.first for part in parts] == [sum(one.messages for one in parts[:at]) for at in range(len(parts))]
    assert sum(part.messages for part in parts) == len(records)
    for part in parts:
        own = records[part.first : part.first + part.messages]
        assert part.body == b"".join(own)
        assert part.size == sum(map(len, own)) + FRAME_HEAD_BYTES * len(own)
        assert part.size <= MOST or part.messages == 1


def test_two_parts_are_never_made_of_what_fits_one() -> None:
    records = [record(100)] * 20
    parts = cut_records(b"".join(records), 20, MOST)
    assert all(first.size + len(records[0]) + FRAME_HEAD_BYTES > MOST for first in parts[:-1])


@pytest.mark.parametrize("wrong", [b"\x00\x00\x00\x01", record(10)[:-1], record(10) + b"x", bytes(200)])
def test_a_body_that_is_not_so_many_records_is_refused_before_any_is_cut_off(wrong: bytes) -> None:
    with pytest.raises(InvalidRequest, match="nothing was stored"):
        cut_records(record(5) + wrong, 2, MOST)


@given(st.lists(st.tuples(st.integers(0, 1500), st.integers(1, 40)), min_size=1, max_size=12))
def test_runs_are_cut_in_order_into_parts_that_fit_or_are_one_message(shapes: list[tuple[int, int]]) -> None:
    runs = [Run(TAIL, number, 1000, [bytes(size)] * count) for number, (size, count) in enumerate(shapes)]
    parts = cut_runs(runs, MOST)
    sent = [(run.flag, body) for run in runs for body in run.bodies]
    assert [(run.flag, body) for part in parts for run in part.runs for body in run.bodies] == sent
    for part in parts:
        own = [(run.flag, body) for run in part.runs for body in run.bodies]
        assert own == sent[part.first : part.first + part.messages]
        assert part.size == sum(frame_bytes(run) * len(run.bodies) for run in part.runs)
        assert part.size <= MOST or part.messages == 1
