"""The bounds of what all native connections hold, and whose turn it is when one is reached."""

from __future__ import annotations

import logging

import pytest

from penstock.service.native_room import (
    RESERVE_BYTES_MAX,
    RESERVE_BYTES_MIN,
    RESERVES_SHARE,
    NativeRoom,
    Unfinished,
    Untaken,
)


def test_the_reserves_of_all_connections_are_a_quarter_of_the_bound_until_each_has_the_least() -> None:
    room = NativeRoom(1 << 28)
    for connections in (1, 10, 256, 300, 1000, 4096):
        room.share_among(connections)
        assert RESERVE_BYTES_MIN <= room.reserve_bytes <= RESERVE_BYTES_MAX
        assert room.reserve_bytes * connections <= (1 << 28) // RESERVES_SHARE
    room.share_among(10_000)
    assert room.reserve_bytes == RESERVE_BYTES_MIN
    room.share_among(0)
    assert room.reserve_bytes == RESERVE_BYTES_MAX


def test_who_waits_to_take_a_request_goes_on_in_order_one_after_the_other_as_long_as_there_is_room() -> None:
    pool, went = Untaken(100), list[int]()

    def on_turn(number: int) -> None:
        went.append(number)
        pool.change(60)

    pool.change(100)
    for number in range(4):
        pool.wait(number, lambda number=number: on_turn(number))  # type: ignore[misc]
    pool.leave(1)
    pool.change(-50)
    assert (went, pool.used, pool.waiting) == ([0], 110, 2)
    pool.change(-110)
    assert (went, pool.used, pool.waiting) == ([0, 2, 3], 120, 0)


def test_one_that_waits_again_in_its_turn_comes_behind_the_others() -> None:
    pool, went = Untaken(100), list[str]()

    def on_turn(who: str) -> None:
        went.append(who)
        pool.change(100)
        pool.wait(who, lambda: on_turn(who))

    pool.change(100)
    pool.wait("a", lambda: on_turn("a"))
    pool.wait("b", lambda: on_turn("b"))
    for _ in range(4):
        pool.change(-100)
    assert went == ["a", "b", "a", "b"]


def test_one_connection_at_a_time_reads_beyond_the_bound_and_then_the_next() -> None:
    pool, went = Unfinished(100), list[str]()
    pool.change(100)
    for who in ("a", "b", "c"):
        pool.wait(who, lambda who=who: went.append(who))  # type: ignore[misc]
        pool.serve()
    assert (went, pool.exempt, pool.waiting) == (["a"], "a", 2)
    pool.change(50)
    pool.serve()
    assert went == ["a"]
    pool.leave("b")
    pool.leave("a")
    assert (went, pool.exempt, pool.waiting) == (["a", "c"], "c", 0)
    pool.leave("c")
    assert pool.exempt is None


def test_where_there_is_room_others_read_beside_the_one_that_is_exempt() -> None:
    pool, went = Unfinished(100), list[str]()
    pool.change(100)
    for who in ("a", "b", "c"):
        pool.wait(who, lambda who=who: went.append(who))  # type: ignore[misc]
    pool.serve()
    pool.change(-10)
    assert went == ["a", "b"]
    pool.change(5)
    pool.serve()  # as "b" does when it has taken its room
    assert went == ["a", "b", "c"]


def test_the_log_says_once_that_a_bound_is_reached_and_again_when_there_has_been_much_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool = Untaken(100)
    with caplog.at_level(logging.WARNING):
        for more in (99, 1, -20, 20, -60, 60):
            pool.change(more)
        assert [one.getMessage() for one in caplog.records] == [
            "replies not taken of all connections reach held_bytes_max: 100 of 100 bytes; further requests wait until"
            " there is room"
        ] * 2


def test_the_figures_bear_the_name_of_the_service() -> None:
    room = NativeRoom(1000)
    room.unfinished.change(7)
    room.untaken.change(8)
    room.untaken.wait(self_ := object(), lambda: None)
    assert room.figures("x") == {"x_unfinished_bytes": 7, "x_untaken_bytes": 8, "x_waiting_connections": 1}
    room.untaken.leave(self_)
    assert room.figures("x")["x_waiting_connections"] == 0
