"""Light queues and retained messages, as the first gateways asked for them."""

from __future__ import annotations

from penstock.protocol.requests import filters
from penstock.protocol.requests.filters import FetchRetained, OpenedFilter, OpenedFilters, OpenFilters, RefusedFilter
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    named = {60: "OpenFilters", 61: "CloseFilters", 62: "KeepFilters", 63: "FetchRetained", 64: "ListFilters"}
    assert codes(filters) == named


def test_an_opened_filter_says_from_where_its_queue_fills() -> None:
    told = answered(OpenFilters, [["a/+", "~filter:a/+", 3, 4096]])
    assert told == OpenedFilters((OpenedFilter("a/+", "~filter:a/+", offset=3, position=4096),))


def test_filters_are_refused_one_by_one() -> None:
    told = answered(OpenFilters, [["a", "~filter:a", 0, 9]], [["b#", 22, "no filter"]])
    assert told == OpenedFilters((OpenedFilter("a", "~filter:a", 0, 9),), (RefusedFilter("b#", 22, "no filter"),))


def test_retained_messages_are_fetched_from_the_first_name_unless_asked() -> None:
    assert asked(63, "a/#") == FetchRetained("a/#", after="", count_max=256)
