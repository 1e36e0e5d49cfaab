from __future__ import annotations

from collections.abc import Mapping

from broker.groups.holders import HOLDS, UNHEARD_S, Holders
from penstock.protocol.requests.groups import Progress

NEVER: Mapping[str, int] = {}


def told(holders: Holders, name: str, *rows: Progress, lease_s: float = 15.0, now: float = 0.0) -> None:
    holders.report("g", name, lease_s, rows, {"set back": 1}, now)


def test_a_position_moves_to_the_holder_that_has_come_least_far_and_never_back() -> None:
    holders = Holders((), 0.0)
    told(holders, "a", Progress("t:0", 9, 0), Progress("t:1", 4, 0))
    told(holders, "b", Progress("t:0", 7, 0))
    assert holders.ahead("g", {"t:0": 3}) == {"t:0": 7, "t:1": 4}
    assert holders.ahead("g", {"t:0": 8, "t:1": 4}) == {}
    told(holders, "b", Progress("t:0", HOLDS, 0))
    assert holders.ahead("g", {"t:0": 3}) == {"t:1": 4}


def test_what_a_holder_says_no_more_it_does_not_hold() -> None:
    holders = Holders((), 0.0)
    told(holders, "a", Progress("t:0", 9, 0))
    told(holders, "b", Progress("t:0", 7, 0))
    told(holders, "b")
    assert holders.ahead("g", NEVER) == {"t:0": 9}


def test_who_has_not_heard_that_a_position_was_set_back_has_no_part_in_it_but_may_hold_it() -> None:
    holders = Holders((), 0.0)
    told(holders, "a", Progress("set back", 9, 0))
    assert holders.ahead("g", NEVER) == {}
    told(holders, "a", Progress("set back", 9, 1))
    assert holders.ahead("g", NEVER) == {"set back": 9}
    told(holders, "b", Progress("set back", HOLDS, 0))
    assert holders.ahead("g", NEVER) == {}


def test_what_was_said_before_a_position_was_set_back_counts_no_more() -> None:
    holders = Holders((), 0.0)
    told(holders, "a", Progress("t:0", 9, 0), Progress("t:1", 9, 0))
    holders.set_back("g", ["t:0"])
    assert holders.ahead("g", NEVER) == {"t:1": 9}


def test_a_holder_goes_with_its_lease_or_its_word() -> None:
    holders = Holders((), 0.0)
    told(holders, "a", Progress("t:0", 9, 0))
    told(holders, "b", Progress("t:0", 7, 0), lease_s=5.0)
    told(holders, "c", Progress("t:0", 1, 0))
    holders.leave("g", "c")
    holders.leave("g", "c")
    assert list(holders.expire(4.9)) == []
    assert holders.names("g") == ("a", "b")
    assert list(holders.expire(5.0)) == ["g"]
    assert holders.ahead("g", NEVER) == {"t:0": 9}
    assert list(holders.expire(15.0)) == ["g"]
    assert "g" not in holders
    assert len(holders) == 0


def test_holders_of_an_earlier_life_are_waited_for() -> None:
    holders = Holders([("g", ("a", "b"))], 100.0)
    told(holders, "a", Progress("t:0", 9, 0), now=100.0, lease_s=60.0)
    assert holders.ahead("g", NEVER) == {}
    assert list(holders.expire(100.0 + UNHEARD_S)) == ["g"]
    assert holders.ahead("g", NEVER) == {"t:0": 9}


def test_the_last_word_of_one_who_leaves_while_others_are_waited_for_counts_when_they_are_not_any_more() -> None:
    holders = Holders([("g", ("a", "b"))], 100.0)
    told(holders, "a", Progress("t:0", 9, 0), now=100.0, lease_s=0.0)
    holders.leave("g", "a")
    moves = []
    for group in holders.expire(100.0 + UNHEARD_S):
        moves.append(holders.ahead(group, NEVER))
    assert moves == [{"t:0": 9}, {}]
    assert "g" not in holders


def test_a_group_whose_move_could_not_be_stored_is_told_of_again() -> None:
    holders = Holders([("f", ("a",)), ("g", ("b",))], 0.0)
    assert next(iter(holders.expire(UNHEARD_S))) == "f"
    assert list(holders.expire(UNHEARD_S)) == ["f", "g"]
