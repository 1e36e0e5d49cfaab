"""Requests that do not fit a segment, cut into parts: nothing is lost, moved or larger than it may be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.messages.parts import cut_runs
from broker.store.run_frames import frame_bytes
from penstock.protocol.message import record_tail
from penstock.protocol.runs import Run

TAIL = record_tail(b"t", b"")
MOST = 1000


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


def test_two_parts_are_never_made_of_what_fits_one() -> None:
    runs = [Run(TAIL, 1, 1000, [bytes(100)]) for _ in range(20)]
    parts = cut_runs(runs, MOST)
    assert all(first.size + frame_bytes(runs[0]) > MOST for first in parts[:-1])


def test_the_parts_of_a_run_whose_ids_count_go_on_counting() -> None:
    tail = record_tail(b"t", b"UNIQ_KEY\x01p-0000000000fe")
    run = Run(tail, 1, 1000, [bytes(200)] * 7, counts=True)
    pieces = [piece for part in cut_runs([run], MOST) for piece in part.runs]
    ids = [piece.tail_of(number)[-2:] for piece in pieces for number in range(len(piece.bodies))]
    assert len(pieces) > 2
    assert ids == [b"fe", b"ff", b"00", b"01", b"02", b"03", b"04"]
