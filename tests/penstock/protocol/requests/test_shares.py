"""Shared subscriptions, as the first gateways took and settled."""

from __future__ import annotations

from penstock.protocol.requests import shares
from penstock.protocol.requests.messages import Pulled
from penstock.protocol.requests.shares import ListShares, SettleShared, SharesPage, ShareState, TakeShared
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    assert codes(shares) == {120: "TakeShared", 121: "SettleShared", 122: "ListShares"}


def test_a_taker_waits_for_nothing_and_begins_anew_unless_asked() -> None:
    assert asked(120, "s", "g", 10) == TakeShared("s", "g", 10, wait_s=0.0, resumes=False, held=())


def test_a_taker_that_says_what_it_has_says_all_of_it_unless_asked() -> None:
    told = TakeShared("s", "g", 0, 0.0, resumes=True, held=(7,), since=0, before=1 << 62)
    assert asked(120, "s", "g", 0, 0.0, True, [7]) == told


def test_what_is_taken_comes_as_a_pull_does() -> None:
    assert answered(TakeShared, 1, 5, 0, 9, body=b"x") == Pulled(1, 5, 0, 9, b"x")


def test_a_word_about_no_message_only_renews_the_lease() -> None:
    assert asked(121, "", "g") == SettleShared("", "g", settled=(), returned=())


def test_shares_are_listed_from_the_first_name_on() -> None:
    assert asked(122) == ListShares(after="", count_max=1000)
    assert answered(ListShares, [["s", 5, 1, 2, 3, 4]], "s") == SharesPage((ShareState("s", 5, 1, 2, 3, 4),), "s")
