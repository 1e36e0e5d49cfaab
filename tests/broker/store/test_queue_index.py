"""Queues: offsets in order, readable in order, pieces that belong together."""

from __future__ import annotations

import pytest

from broker.store.queue_index import ENTRY20, ENTRY_BYTES, Piece, Queue, QueueIndex
from penstock.errors import QueueNotFound


def entry(position: int) -> bytes:
    return ENTRY20.pack(position, 10, 0)


def test_a_new_queue_begins_at_its_first_offset() -> None:
    queue = QueueIndex().ensure("~a", 500)
    assert (queue.min, queue.readable, queue.next) == (500, 500, 500)


def test_entries_become_readable_in_order() -> None:
    index = QueueIndex()
    queue = index.ensure("a")
    index.add(queue, entry(0), True)
    index.add(queue, entry(10), False)
    index.add(queue, entry(20), True)
    assert (queue.readable, queue.next) == (1, 3)
    index.mark_readable(20)
    assert queue.readable == 2
    index.mark_readable(30)
    assert queue.readable == 3
    index.add(queue, entry(30), True)
    assert queue.readable == 4


def test_runs_become_readable_up_to_the_point_and_at_the_logs_end_all_of_them() -> None:
    index = QueueIndex()
    first, second = index.ensure("a"), index.ensure("b")
    index.add(first, entry(0) + entry(10) + entry(20), False)
    index.add(second, entry(30), False)
    index.mark_readable(15)
    assert (first.readable, second.readable) == (2, 0), "what lies behind the point is not"
    index.mark_readable(40)
    assert (first.readable, second.readable) == (3, 1)
    assert index.take_fresh() == ["a", "b"]


def test_fresh_queues_are_told_once_in_order() -> None:
    index = QueueIndex()
    for key in ("b", "a", "b"):
        index.add(index.ensure(key), entry(0), True)
    assert index.take_fresh() == ["b", "a"]
    assert index.take_fresh() == []
    index.add(index.ensure("c"), entry(10), False)
    assert index.take_fresh() == []
    index.mark_readable(20)
    assert index.take_fresh() == ["c"]


def test_a_dropped_queue_is_unknown_and_who_waits_for_it_is_told_once() -> None:
    index = QueueIndex()
    index.add(index.ensure("a"), entry(0), False)
    index.add(index.ensure("b"), entry(0), True)
    index.drop("a")
    assert index.take_fresh() == ["b", "a"]
    index.drop("b")
    assert index.take_fresh() == ["b"]
    index.mark_readable(100)
    assert index.take_fresh() == []
    assert index.find("a") is None
    with pytest.raises(QueueNotFound, match="a"):
        index.get("a")


def test_sealed_entries_leave_the_tail_and_are_found_by_their_piece() -> None:
    index = QueueIndex()
    queue = index.ensure("a", 100)
    for number in range(5):
        index.add(queue, entry(number * 10), True)
    queue.take_from_tail(2, 7, 40)
    queue.take_from_tail(2, 8, 0)
    assert (queue.min, queue.tail_base, queue.next, queue.readable) == (100, 104, 105, 105)
    assert [queue.piece_of(offset) for offset in range(100, 105)] == [
        Piece(100, 2, 7, 40),
        Piece(100, 2, 7, 40),
        Piece(102, 2, 8, 0),
        Piece(102, 2, 8, 0),
        None,
    ]
    index.forget_before(8)
    assert queue.min == 102


def test_the_pieces_of_all_chunks_before_a_position_are_forgotten_and_no_others() -> None:
    index = QueueIndex()
    for number in range(8):  # queue "n" has an entry in every chunk but the first n
        for chunk in range(number, 8):
            queue = index.ensure(str(number))
            index.add(queue, entry(chunk * 100), True)
            queue.take_from_tail(1, chunk * 100 + chunk % 2, 0)
    index.add(index.ensure("tail"), entry(800), True)
    index.forget_before(400)
    assert [queue.min for queue in index] == [4, 3, 2, 1, 0, 0, 0, 0, 0]
    assert all(queue.next == 8 - number for number, queue in enumerate(index) if queue.key != "tail")
    assert [index.get("0").piece_of(offset) for offset in (4, 7)] == [Piece(4, 1, 400, 0), Piece(7, 1, 701, 0)]
    index.forget_before(400)
    assert [len(queue.pieces) // 28 for queue in index] == [4, 4, 4, 4, 4, 3, 2, 1, 0]
    index.forget_before(800)
    assert [queue.min for queue in index] == [8, 7, 6, 5, 4, 3, 2, 1, 0]


def test_only_pieces_of_this_queue_and_not_of_an_earlier_one_belong_to_it() -> None:
    queue = Queue("~a", 100)
    queue.first = 80
    assert not queue.precede(Piece(10, 5, 1, 0))
    assert queue.precede(Piece(90, 10, 2, 0))
    assert not queue.precede(Piece(85, 10, 2, 0)), "it reaches into the one that is known"
    assert queue.precede(Piece(80, 5, 1, 0))
    assert queue.min == 80


def test_an_offset_in_a_gap_goes_on_behind_it() -> None:
    queue = Queue("~a", 500)
    queue.first = 10
    assert queue.precede(Piece(100, 10, 2, 0))
    assert queue.precede(Piece(10, 5, 1, 0))
    found = [queue.behind_gap(offset) for offset in (9, 10, 14, 15, 99, 100, 109, 110, 499, 500, 501)]
    assert found == [9, 10, 14, 100, 100, 100, 109, 500, 500, 500, 501]


def test_entries_before_a_position_are_counted() -> None:
    index = QueueIndex()
    queue = index.ensure("a")
    for number in range(5):
        index.add(queue, entry(number * 10), True)
    assert [queue.entries_before(at) for at in (0, 1, 10, 41, 100)] == [0, 1, 1, 5, 5]


def test_queues_without_entries_share_their_containers() -> None:
    index = QueueIndex()
    one, two = index.ensure("a"), index.ensure("b")
    assert one.tail is two.tail
    index.add(one, entry(0), True)
    assert len(two.tail) == 0
    one.take_from_tail(1, 0, 0)
    assert one.tail is two.tail


def test_pieces_become_one_where_their_chunks_do() -> None:
    queue = Queue("a:0", 24)
    queue.first = 0
    for piece in (Piece(20, 4, 300, 7), Piece(9, 6, 200, 7), Piece(5, 4, 100, 7), Piece(0, 5, 0, 7)):
        assert queue.precede(piece)
    queue.join(Piece(0, 15, 1, 0), frozenset({0, 100, 200}))
    assert [queue.piece_of(offset) for offset in (0, 14, 20)] == [Piece(0, 15, 1, 0)] * 2 + [Piece(20, 4, 300, 7)]
    assert (queue.min, queue.behind_gap(15)) == (0, 20)


def test_pieces_of_an_earlier_queue_or_of_other_chunks_are_not_joined() -> None:
    queue = Queue("~a", 24)
    queue.first = 9
    assert queue.precede(Piece(20, 4, 300, 7))
    assert queue.precede(Piece(9, 6, 200, 7))
    before = queue.pieces
    queue.join(Piece(0, 9, 1, 0), frozenset({0, 100, 200}))
    queue.join(Piece(9, 6, 1, 0), frozenset({0, 100}))
    queue.join(Piece(9, 7, 1, 0), frozenset({200}))
    queue.join(Piece(10, 5, 1, 0), frozenset({200}))
    assert queue.pieces == before
    queue.join(Piece(9, 6, 1, 0), frozenset({200}))
    assert queue.piece_of(9) == Piece(9, 6, 1, 0)


def test_what_is_added_is_counted_in_bytes() -> None:
    index = QueueIndex()
    index.add(index.ensure("a"), entry(0), True)
    index.add(index.ensure("b"), entry(0) * 3, True)
    assert index.added == 80


def test_of_a_piece_that_holds_the_end_of_an_earlier_queue_a_later_one_takes_its_own_part() -> None:
    """The earlier one ended at offset 5, where the later one begins; merging has made one piece of both."""
    queue = QueueIndex().ensure("t:0", 9)
    queue.first = 5
    assert queue.precede(Piece(2, 7, 100, 40))
    assert (queue.min, queue.piece_of(5)) == (5, Piece(5, 4, 100, 40 + 3 * ENTRY_BYTES))
    assert not queue.precede(Piece(0, 2, 50, 0))
    assert not queue.precede(Piece(3, 2, 50, 0))


def test_pieces_become_one_also_with_the_end_of_an_earlier_queue() -> None:
    queue = QueueIndex().ensure("t:0", 9)
    queue.first = 5
    for piece in (Piece(7, 2, 200, 0), Piece(5, 2, 100, 60)):
        assert queue.precede(piece)
    queue.join(Piece(2, 7, 300, 40), {100, 200})
    assert queue.piece_of(8) == Piece(5, 4, 300, 40 + 3 * ENTRY_BYTES)
