"""What is kept of a subscription."""

from __future__ import annotations

from gateway.sessions.subscriptions import Subscription


def test_a_subscription_without_options_is_as_before_mqtt_5() -> None:
    one = Subscription("a/+", 1)
    assert (one.filter, one.qos, one.identifier, one.name) == ("a/+", 1, 0, "")
    assert not one.no_local
    assert not one.as_published
    assert one.retain_handling == 0


def test_what_one_with_a_name_is_sent_counts_for_its_position() -> None:
    assert not Subscription("a/+", 1, shows_place=True).counts
    assert Subscription("a/+", 1, name="mine").counts
