from __future__ import annotations

import pytest

from namesrv import config_store
from namesrv.config_store import ConfigStore
from namesrv.registry import Registry
from penstock.errors import Busy, InvalidRequest
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import (
    ORDERED_TOPICS,
    ConfigEntries,
    ConfigEntry,
    PutConfig,
    QueryConfig,
    QueryRoute,
    RegisterBroker,
    Route,
    TopicRoute,
)


def entries(store: ConfigStore, *asked: str) -> list[tuple[str, ...]]:
    found = store.answer(QueryConfig(*asked))
    assert isinstance(found, ConfigEntries)
    return [tuple(one) for one in found.entries]


def test_entries_are_set_found_replaced_and_removed() -> None:
    store = ConfigStore()
    for entry in (("a", "k", "1"), ("b", "k", "2"), ("a", "j", "3"), ("a", "k", "4")):
        assert store.answer(PutConfig(*entry)) == Done()
    assert entries(store) == [("a", "j", "3"), ("a", "k", "4"), ("b", "k", "2")]
    assert entries(store, "a") == [("a", "j", "3"), ("a", "k", "4")]
    assert entries(store, "a", "k") == [("a", "k", "4")]
    assert store.answer(PutConfig("a", "k", "")) == Done()
    assert entries(store, "a", "k") == []


@pytest.mark.parametrize(
    "entry",
    [("", "k", "v"), ("n", "", "v"), ("n" * 256, "k", "v"), ("n", "k", "v" * 4097), (ORDERED_TOPICS, "t", ";"),
     (ORDERED_TOPICS, "t", "a;a"), (ORDERED_TOPICS, "t", "a:x"), (ORDERED_TOPICS, "t", "a b")],
)  # fmt: skip
def test_what_is_outside_the_rules_changes_nothing(entry: tuple[str, str, str]) -> None:
    store = ConfigStore()
    assert isinstance(store.answer(PutConfig(*entry)), InvalidRequest)
    assert (entries(store), store.version) == ([], 0)


def test_there_are_no_more_entries_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_store, "ENTRIES_MAX", 1)
    store = ConfigStore()
    store.put("n", "k", "1")
    store.put("n", "k", "2")
    with pytest.raises(Busy):
        store.put("n", "j", "1")


def test_a_file_keeps_all_of_it_and_what_is_none_is_refused() -> None:
    store, copy = ConfigStore(), ConfigStore()
    store.put("n", "ü", "x\n")
    store.put(ORDERED_TOPICS, "t", "b:4;a:4")
    copy.take_json(store.as_json())
    assert (entries(copy), copy.brokers_of("t"), copy.as_json()) == (entries(store), ("b", "a"), store.as_json())
    for text in ("", "[]", '{"a": 1}', '{"a": {"k": 1}}'):
        with pytest.raises(InvalidRequest):
            copy.take_json(text)


def test_the_route_of_an_ordered_topic_says_which_place_each_broker_has_also_while_one_is_away() -> None:
    registry = Registry()
    for name in ("a", "b"):
        registry.answer(RegisterBroker(name, f"{name}:1", 1, 60.0, (TopicRoute("t", 4), TopicRoute("u", 4))), 0.0)
    assert registry.answer(PutConfig(ORDERED_TOPICS, "t", "c;b;a"), 0.0) == Done()

    def places(topic: str) -> list[tuple[str, int, int]]:
        route = registry.answer(QueryRoute(topic), 0.0)
        assert isinstance(route, Route)
        return [(one.broker, one.place, one.places) for one in route.brokers]

    assert places("t") == [("a", 2, 3), ("b", 1, 3)]
    assert places("u") == [("a", -1, 0), ("b", -1, 0)]
    assert ConfigEntry(ORDERED_TOPICS, "t", "c;b;a") in registry.answer(QueryConfig(), 0.0).entries  # type: ignore[union-attr]
