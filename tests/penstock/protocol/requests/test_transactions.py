"""Transactions, as the first producers asked for them."""

from __future__ import annotations

from penstock.protocol.requests import transactions
from penstock.protocol.requests.transactions import (
    BeginHalf,
    BeginHalves,
    CheckHalf,
    EndHalves,
    HalfBegun,
    HalfEnded,
    HalfOutcome,
    HalfRow,
    HalvesBegun,
    HalvesEnded,
    HalvesPage,
    HalvesToCheck,
    ListHalves,
    WatchHalves,
)
from tests.penstock.protocol.requests.first_frames import answered, asked, codes

ROW = [7, "g", 5, 1, "", "t", "k", 100]


def test_codes_never_change() -> None:
    assert codes(transactions) == {
        170: "BeginHalves",
        171: "EndHalves",
        172: "WatchHalves",
        173: "ListHalves",
        174: "CheckHalf",
        175: "BeginHalf",
    }


def test_halves_come_as_the_body_and_have_ids() -> None:
    assert asked(170, "g", 2, body=b"records") == BeginHalves("g", 2, b"records")
    assert answered(BeginHalves, [7, 9]) == HalvesBegun((7, 9), ())


def test_each_outcome_has_an_answer_of_its_own() -> None:
    assert asked(171, "g", [[7, "commit"]]) == EndHalves("g", (HalfOutcome(7, "commit"),))
    assert answered(EndHalves, [[7, "commit"]]) == HalvesEnded((HalfEnded(7, "commit", 0, ""),))


def test_a_producer_that_waits_gets_rows_and_records() -> None:
    assert asked(172, "g", 1.5) == WatchHalves("g", 1.5, 16)
    assert answered(WatchHalves, [ROW], body=b"r") == HalvesToCheck((HalfRow(*ROW),), b"r")


def test_operators_list_halves_and_have_one_checked() -> None:
    assert (asked(173), asked(174, 7)) == (ListHalves(0, 100), CheckHalf(7))
    assert answered(ListHalves, [ROW], 7, 1) == HalvesPage((HalfRow(*ROW),), 7, 1)


def test_one_half_of_several_messages_comes_as_runs_and_has_one_id() -> None:
    assert asked(175, "g", 2, 77, body=b"runs") == BeginHalf("g", 2, 77, b"runs")
    assert answered(BeginHalf, 7) == HalfBegun(7, ())
    assert HalfRow(*ROW).messages == 1
