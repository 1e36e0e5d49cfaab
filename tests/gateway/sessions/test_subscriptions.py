"""What is kept of a subscription."""

from __future__ import annotations

from gateway.sessions.subscriptions import REDOS_MAX, Redo, Subscription, bounded, is_left, without_dominated


def test_a_subscription_without_options_is_as_before_mqtt_5() -> None:
    one = Subscription("a/+", 1)
    assert (one.filter, one.qos, one.identifier, one.name) == ("a/+", 1, 0, "")
    assert not one.no_local
    assert not one.as_published
    assert one.retain_handling == 0


def test_what_one_with_a_name_is_sent_counts_for_its_position() -> None:
    assert not Subscription("a/+", 1, shows_place=True).counts
    assert Subscription("a/+", 1, name="mine").counts


def test_a_stretch_is_of_what_all_its_filters_match_behind_a_position() -> None:
    redos = [Redo(9, 100, "f/+", ("+/a",))]
    assert is_left(redos, 101, "f/a")
    assert not is_left(redos, 100, "f/a")
    assert not is_left(redos, 101, "f/b")
    assert not is_left(None, 101, "f/a")


def test_what_lies_within_a_larger_stretch_is_left_out() -> None:
    large = Redo(9, 100, "f/+")
    within = [Redo(9, 100, "f/+"), Redo(8, 101, "f/+"), Redo(9, 100, "+/a", ("f/+",))]
    others = [Redo(10, 100, "f/+", ("g/+",)), Redo(9, 99, "f/+", ("+/a",)), Redo(9, 100, "g/+")]
    kept = without_dominated([*within, large, *others])
    assert sorted(kept) == sorted([large, *others])


def test_too_many_stretches_become_one_that_has_them_all() -> None:
    redos = [Redo(number, 100 - number, f"f/{number}") for number in range(1, REDOS_MAX + 1)]
    assert bounded("#", redos) == redos
    assert bounded("#", [*redos, redos[0]]) == sorted(redos, key=lambda one: one.after)
    assert bounded("#", [*redos, Redo(1, 5, "g")]) == [Redo(REDOS_MAX, 5, "#")]
