"""Which topics a consumer reads, and where it begins in them."""

from __future__ import annotations

import re

import pytest

from penstock.client.subscription import CLOCKS_APART_MS, Subscription
from penstock.errors import InvalidRequest, NoRoute
from penstock.protocol.requests.routes import BrokerRoute

ROUTE = BrokerRoute("b", "h:1", 4)
OPENED_MS = 1_700_000_000_000


def test_named_topics_are_those_whatever_there_is() -> None:
    assert Subscription(["a", "b", "a"]).chosen(["c"]) == ("a", "b")


def test_a_pattern_is_of_a_whole_name_as_it_is_stored_or_read() -> None:
    names = ["plant", "plants", "temp%C3%A9rature", "%sys%x", "%DLQ%g", "%RETRY%g", "%24SYS"]
    assert Subscription(re.compile("plant")).chosen(names) == ("plant",)
    assert Subscription(re.compile("température")).chosen(names) == ("temp%C3%A9rature",)
    assert Subscription(re.compile(".*")).chosen(names) == ("plant", "plants", "temp%C3%A9rature")


def test_a_pattern_of_bytes_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="pattern of topics is one of str"):
        Subscription(re.compile(b"a"))  # type: ignore[arg-type]


def test_what_appears_later_is_new_from_about_the_opening_on() -> None:
    subscription = Subscription(["old", "new"])
    subscription.found("old", [ROUTE])
    subscription.missed("new", NoRoute("none"))
    assert subscription.waits
    subscription.opened(OPENED_MS)
    subscription.found("new", [ROUTE])
    subscription.opened(OPENED_MS + 5000)
    assert not subscription.waits
    assert (subscription.start_of("old"), subscription.start_of("new")) == ("latest", OPENED_MS - CLOCKS_APART_MS)
    assert Subscription("t", "earliest").start_of("t") == "earliest"


def test_a_topic_that_nobody_has_for_a_while_stays_where_it_was() -> None:
    subscription = Subscription("t")
    subscription.found("t", [ROUTE])
    subscription.missed("t", NoRoute("its broker is away"))
    assert subscription.by_broker(["t", "u"]) == ({"b": ["t"]}, {"b": "h:1"})
    assert not subscription.waits


def test_retries_are_read_wherever_the_topics_are_and_where_they_are_left_alone() -> None:
    subscription = Subscription(["t"], retry_topic="%RETRY%g")
    subscription.found("t", [ROUTE])
    assert subscription.by_broker(["t"])[0] == {"b": ["t", "%RETRY%g"]}
    subscription.found_retries([BrokerRoute("c", "h:2", 1)])
    assert subscription.by_broker(["t"]) == ({"b": ["t", "%RETRY%g"], "c": ["%RETRY%g"]}, {"b": "h:1", "c": "h:2"})
    subscription.opened(OPENED_MS)
    assert (subscription.start_of("t"), subscription.start_of("%RETRY%g")) == ("latest", "earliest")
