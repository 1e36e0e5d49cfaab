"""Whoever makes topics by messages makes a bounded number of them."""

from __future__ import annotations

import pytest

from penstock.errors import Busy
from penstock.service.topic_rate import TopicRate, peer_of


def test_a_peer_makes_so_many_topics_in_a_minute_and_the_error_names_the_limit() -> None:
    rate = TopicRate(2)
    for _ in range(2):
        rate.take("user ada", 0.0)
    with pytest.raises(Busy, match=r"messages of user ada make more than 2 topics .* \(user_topics_per_min_max\)"):
        rate.take("user ada", 1.0)
    rate.take("user bob", 1.0)
    rate.take("user ada", 31.0)  # half a minute is one more
    with pytest.raises(Busy):
        rate.take("user ada", 31.0)


def test_without_a_limit_nobody_is_refused() -> None:
    rate = TopicRate(0)
    for _ in range(1_000):
        rate.take("user ada", 0.0)


def test_a_peer_is_its_user_or_else_its_address_without_its_port() -> None:
    assert peer_of("ada", "192.0.2.1") == "user ada"
    assert peer_of("", "192.0.2.1") == "address 192.0.2.1"
    assert peer_of("", "2001:db8::1") == peer_of("", "2001:db8::2"), "one host has a whole network of them"
