"""Which lives of gateways are over, and who leads one."""

from __future__ import annotations

from broker.folds.lives import LIVES_MAX, Lives


def lives(*bodies: list[object]) -> Lives:
    made = Lives()
    for body in bodies:
        made.apply(body)
    return made


def test_another_life_of_an_owner_ends_the_one_before() -> None:
    known = lives(Lives.beginning("g", "a"), Lives.beginning("h", "b"), Lives.beginning("g", "c"))
    assert (known.of("g"), known.of("h"), known.owners) == ("c", "b", ["h", "g"])
    assert list(known.over) == ["a"]


def test_a_life_that_begins_twice_goes_on() -> None:
    known = lives(Lives.beginning("g", "a"), Lives.beginning("g", "a"))
    assert (known.of("g"), list(known.over)) == ("a", [])


def test_who_leads_a_life_that_is_ended_leads_none() -> None:
    known = lives(Lives.beginning("g", "a"), Lives.beginning("h", "b"), Lives.ending(["a", "x"]))
    assert (known.of("g"), known.of("h"), list(known.over)) == ("", "b", ["a", "x"])


def test_what_ended_since_is_told_in_order_and_all_of_it_to_whoever_knows_nothing() -> None:
    known = lives(Lives.ending(["a", "b"]), Lives.ending(["c"]))
    assert known.over_after("a") == ("b", "c")
    assert known.over_after("c") == ()
    assert known.over_after("") == known.over_after("of another home") == ("a", "b", "c")


def test_of_very_many_the_latest_are_known() -> None:
    many = [f"{number}" for number in range(LIVES_MAX + 2)]
    known = lives(Lives.ending(many), *[Lives.beginning(one, f"of {one}") for one in many])
    assert list(known.over) == many[2:]
    assert known.owners == many[2:]


def test_a_snapshot_brings_it_all_back() -> None:
    known = lives(Lives.beginning("g", "a"), Lives.beginning("h", "b"), Lives.ending(["y", "a"]))
    again = Lives()
    again.restore(known.snapshot())
    assert (list(again.over), again.of("h"), again.owners) == (["y", "a"], "b", ["h"])
