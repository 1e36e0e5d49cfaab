"""The text of figures, checked against both formats' rules."""

from __future__ import annotations

import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

from penstock.service.histogram import Histogram
from penstock.service.metrics import PART_SERIES, expose, expose_in_parts, label_of, with_label

FIGURES = {
    "rocketmq_messages_in_total": 12.0,
    "connections": 3.0,
    'appends_total{level="disk"}': 2.0,
    'appends_total{level="cache"}': 1.0,
}


def test_prometheus_text_has_a_type_per_family_and_sorted_samples() -> None:
    assert expose(FIGURES).splitlines() == [
        "# TYPE appends_total counter",
        'appends_total{level="cache"} 1',
        'appends_total{level="disk"} 2',
        "# TYPE connections gauge",
        "connections 3",
        "# HELP rocketmq_messages_in_total Messages stored.",
        "# TYPE rocketmq_messages_in_total counter",
        "rocketmq_messages_in_total 12",
    ]


def test_openmetrics_names_a_counter_without_total_and_ends_with_eof() -> None:
    lines = expose(FIGURES, openmetrics=True).splitlines()
    assert lines[0] == "# TYPE appends counter"
    assert lines[1] == 'appends_total{level="cache"} 1'
    assert "# HELP rocketmq_messages_in Messages stored." in lines
    assert lines[-1] == "# EOF"


def test_without_figures_the_pages_are_still_pages() -> None:
    assert expose({}) == ""
    assert expose({}, openmetrics=True) == "# EOF\n"


def test_numbers_keep_their_value_and_odd_ones_have_their_names() -> None:
    values = [0.1, 1e300, -5.0, float("nan"), float("inf"), float("-inf"), 2.0**53 + 2, 1]
    text = expose({f"f{at}": value for at, value in enumerate(values)})
    found = [line.split()[1] for line in text.splitlines() if not line.startswith("#")]
    assert found == ["0.1", "1e+300", "-5", "NaN", "+Inf", "-Inf", "9007199254740994.0", "1"]


def test_an_odd_name_does_not_spoil_the_page() -> None:
    lines = expose({"9 lives\n": 9, "": 1}).splitlines()
    assert lines == ["# TYPE _ gauge", "_ 1", "# TYPE _9_lives_ gauge", "_9_lives_ 9"]
    assert all(re.fullmatch(r"# TYPE [a-zA-Z_:][\w:]* \w+|[a-zA-Z_:][\w:]* \S+", line) for line in lines)


def test_a_label_is_read_back_as_it_was_given() -> None:
    for value in ("gw-1", 'a "b" \\ c', ""):
        assert label_of(with_label("silent_s", "gateway", value), "silent_s", "gateway") == value
    assert label_of("silent_s", "silent_s", "gateway") is None
    assert label_of('silent_s{listener="a"}', "silent_s", "gateway") is None
    assert expose({with_label("f", "l", 'a\n"b"'): 1}).splitlines()[1] == 'f{l="a \\"b\\""} 1'


@pytest.mark.parametrize("openmetrics", [False, True])
def test_the_parsers_of_prometheus_read_what_was_meant(openmetrics: bool) -> None:
    histogram = Histogram()
    histogram.observe(0.3)
    odd = with_label("odd", "topic", 'a "b" \\ c')
    text = expose(FIGURES | {odd: 7.0} | histogram.figures("x_seconds"), openmetrics=openmetrics)
    families = {one.name: one for one in (read_openmetrics if openmetrics else read_prometheus)(text)}
    assert {name: one.type for name, one in families.items()} == {
        "appends": "counter",
        "connections": "gauge",
        "odd": "gauge",
        "rocketmq_messages_in": "counter",
        "x_seconds": "histogram",
    }
    assert families["odd"].samples[0].labels == {"topic": 'a "b" \\ c'}
    buckets = [one for one in families["x_seconds"].samples if one.name == "x_seconds_bucket"]
    assert [one.value for one in buckets if one.labels["le"] in ("0.25", "0.5", "+Inf")] == [0, 1, 1]


def test_a_page_of_100_000_series_comes_in_parts_of_a_few() -> None:
    figures = {with_label("many", "topic", f"topic-{number:06}"): float(number) for number in range(100_000)}
    parts = list(expose_in_parts(figures))
    assert max(part.count("\n") for part in parts) == PART_SERIES
    assert len(parts) >= 2 * 100_000 / PART_SERIES, "reading them has pauses, too"
    assert "".join(parts) == expose(figures)
    assert parts[-1].endswith('many{topic="topic-099999"} 99999\n')
