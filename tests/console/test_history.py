from __future__ import annotations

import pytest

from console import history
from console.history import FORGOTTEN_S, GroupLags, Rates, Series, TopicRates


def test_a_series_keeps_its_latest_samples_as_columns() -> None:
    series = Series(("in", "out"), 2)
    assert (series.columns(), series.last) == ({"names": ("in", "out"), "data": [[], [], []]}, {})
    for at in (1.0, 2.0, 3.0):
        series.add(at, (at * 10, at * 100))
    assert series.columns()["data"] == [[2.0, 3.0], [20.0, 30.0], [200.0, 300.0]]
    assert series.last == {"in": 30.0, "out": 300.0}


def test_lags_of_groups_are_kept_while_they_are_there_and_of_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "GROUPS_MAX", 2)
    lags = GroupLags(10)
    lags.add(1.0, {"c": 3, "a": 1, "b": 2})
    lags.add(2.0, {"a": 5})
    assert lags.of("a").columns()["data"] == [[1.0, 2.0], [1, 5]]
    assert lags.of("b").columns()["data"] == lags.of("c").columns()["data"] == [[], []]


def test_rates_are_growth_per_second_and_never_negative() -> None:
    rates = Rates()
    assert rates.step(1.0, {"n": 100}) == {"n": 0}
    assert rates.step(3.0, {"n": 120, "new": 7}) == {"n": 10, "new": 0}
    assert rates.step(4.0, {"n": 5, "new": 8}) == {"n": 0, "new": 1}, "the broker began anew"


def test_rates_of_topics_are_from_one_look_to_the_next_and_of_those_looked_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "TOPICS_MAX", 2)
    rates = TopicRates()
    assert [rates.look(topic, 100, 1.0) for topic in "ab"] == [None, None]
    assert [rates.look("a", 120, 3.0), rates.look("a", 130, 3.5), rates.look("a", 130, 8.0)] == [10, 10, 2]
    assert rates.look("a", 5, 10.0) == 0, "the topic began anew"
    assert rates.look("c", 1, 10.0) is None
    assert rates.look("b", 100, 10.0) is None, "two others were looked at since"
    assert rates.look("b", 100, 11.0 + FORGOTTEN_S) is None
