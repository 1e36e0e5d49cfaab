from __future__ import annotations

import pytest

from events.cloudevents import Event
from events.problems import Problem
from events.transform import Transform, TransformFailed


def found(path: str, data: bytes) -> bytes:
    return Transform({"kind": "jsonpath", "path": path}).apply(Event({"id": "1"}, data)).body


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("$.data[?match(@.a, 'a+b|c')].a", b'["aab","c"]'),
        ("$.data[?search(@.a, '^a')].a", b'["aab"]'),
        ("$.data[?match(@.a, '(')].a", b"[]"),
        ("$.data[?match(@.n, '1')].a", b"[]"),
        ("$.data[?count(@.*) > 1].n", b"[1]"),
    ],
)
def test_functions_find_what_they_say(path: str, wanted: bytes) -> None:
    assert found(path, b'[{"a": "aab"}, {"a": "c", "n": 1}]') == wanted


def test_a_regular_expression_takes_no_longer_than_its_text_is() -> None:
    assert found("$.data[?search(@, '(a+)+$')]", b'["' + b"a" * 10_000 + b'!"]') == b"[]"


@pytest.mark.parametrize(
    "path", ["$.data[?@.a == $.id]", "$.data[?@..a]", "$.data[?@[?@..a]]", "$.data[?count($..*) > 1]"]
)
def test_a_filter_that_reads_the_event_again_for_each_node_is_refused(path: str) -> None:
    with pytest.raises(Problem, match="a filter has no query"):
        Transform({"kind": "jsonpath", "path": path})


def test_a_path_that_visits_too_many_nodes_is_a_failure() -> None:
    with pytest.raises(TransformFailed, match="100000 nodes"):
        found("$..*..*..gone", b"[" + b",".join([b"[[[[]]]]"] * 10_000) + b"]")
