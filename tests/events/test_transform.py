from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.cloudevents import JSON, Event, from_document
from events.problems import Problem
from events.transform import Transform, TransformFailed

DATA = {"n": 3, "t": 'say "hi"', "deep": {"list": [1, {"x": "y"}, None], "a.b": True}, "none": None}
EVENT = from_document({"specversion": "1.0", "id": "e1", "source": "/s", "type": "t", "subject": "d7", "data": DATA})
NAMES = {"bus": "main", "rule": "r"}


def path(text: str) -> dict[str, Any]:
    return {"kind": "jsonpath", "path": text}


def filled(template: Any, variables: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"kind": "template", "template": template, "variables": variables or {}, **more}


V = {"n": "$.data.n", "t": "$.data.t", "deep": "$.data.deep", "gone": "$.data.gone", "id": "$.id"}
MADE: list[tuple[dict[str, Any], Any]] = [
    ({"kind": "complete"}, DATA),
    (path("$.data.n"), 3),
    (path("$.data"), DATA),
    (path("$.id"), "e1"),
    (path("$.data.deep.list[1].x"), "y"),
    (path("$.data.deep['a.b']"), True),
    (path("$['data']['n']"), 3),
    (path("$.data.deep.list[2]"), None),
    (path("$.data.gone"), None),
    (path("$.data.n.x"), None),
    (path("$.data.deep.list[9]"), None),
    (path("$.data.deep.list[-1]"), [None]),
    (path("$.data.deep.list[*]"), [1, {"x": "y"}, None]),
    (path("$..x"), ["y"]),
    (path("$.data.deep.list[0:2]"), [1, {"x": "y"}]),
    (path("$.data.deep.list[?@.x == 'y']"), [{"x": "y"}]),
    (path("$.data['n','t']"), [3, 'say "hi"']),
    (path("$..gone"), []),
    ({"kind": "constant", "value": {"wake": "up"}}, {"wake": "up"}),
    ({"kind": "constant", "value": None}, None),
    ({"kind": "constant", "value": "text"}, "text"),
    (filled('{"n": ${n}}', V), {"n": 3}),
    (filled('{"t": "${t}"}', V), {"t": 'say "hi"'}),
    (filled('{"t": ${t}}', V), {"t": 'say "hi"'}),
    (filled('{"t": "it did ${t}!"}', V), {"t": 'it did say "hi"!'}),
    (filled('{"d": ${deep}}', V), {"d": DATA["deep"]}),
    (filled('{"d": "${deep}"}', V), {"d": '{"list":[1,{"x":"y"},null],"a.b":true}'}),
    (filled('{"g": ${gone}}', V), {"g": None}),
    (filled('{"g": "${gone}"}', V), {"g": ""}),
    (filled('"\\"${n}\\""', V), '"3"'),
    (filled('{"a": "\\\\", "n": ${n}}', V), {"a": "\\", "n": 3}),
    (filled('["${id}", ${n}, "${n}"]', V), ["e1", 3, "3"]),
    (filled({"n": "${n}", "s": "n=${n}", "l": ["${deep}"]}, V), {"n": 3, "s": "n=3", "l": [DATA["deep"]]}),
    (filled('{"b": "${bus}", "r": ${rule}}'), {"b": "main", "r": "r"}),
    (filled("${event}"), EVENT.document()),
    (filled('{"p": "$${n} costs $5"}'), {"p": "${n} costs $5"}),
    (filled("[1]"), [1]),
    (filled('{"x": ${x}}', {"x": "$..x"}), {"x": ["y"]}),
]
TEXTS = [
    (filled("n is ${n}, ${t}", V, content_type="text/plain"), b'n is 3, say "hi"', "text/plain"),
    (
        filled("${deep}|${gone}|", V, content_type="text/plain"),
        b'{"list":[1,{"x":"y"},null],"a.b":true}||',
        "text/plain",
    ),
    ({"kind": "constant", "value": "<x/>", "content_type": "application/xml"}, b"<x/>", "application/xml"),
]
REFUSED: list[Any] = [
    "complete",
    {},
    {"kind": "python"},
    {"kind": ["complete"]},
    {"kind": "complete", "path": "$"},
    {"kind": "jsonpath"},
    path("data.n"),
    path("$["),
    path("$.a[?"),
    path("$" + ".a" * 600),
    {"kind": "constant"},
    {"kind": "constant", "value": 1, "content_type": "text/plain"},
    {"kind": "constant", "value": 1, "content_type": "text\r\nx: y"},
    filled(None),
    filled("${nothing}"),
    filled("{${n}}", V),
    filled('{"a": ', V),
    filled('{"n": "${n}', V),
    filled("x", {"1x": "$"}),
    filled("1", {"event": "$"}),
    filled("1", {"x": "nope"}),
    filled("1", {f"v{number}": "$" for number in range(101)}),
    filled("1", strict="yes"),
]


def test_the_tables_have_forty_cases() -> None:
    assert len(MADE) + len(TEXTS) >= 40


@pytest.mark.parametrize(("spec", "wanted"), MADE)
def test_a_transform_makes_this_json(spec: Any, wanted: Any) -> None:
    payload = Transform(spec).apply(EVENT, NAMES)
    assert (json.loads(payload.body), payload.content_type) == (wanted, JSON)


@pytest.mark.parametrize(("spec", "body", "kind"), TEXTS)
def test_a_transform_makes_this_text(spec: Any, body: bytes, kind: str) -> None:
    assert Transform(spec).apply(EVENT, NAMES) == (body, kind, False)


@pytest.mark.parametrize("spec", REFUSED)
def test_what_cannot_be_compiled_is_refused(spec: Any) -> None:
    with pytest.raises(Problem):
        Transform(spec)


@pytest.mark.parametrize("spec", [path("$.data.gone"), filled("${gone}", V)])
def test_a_strict_transform_fails_where_the_event_has_nothing(spec: dict[str, Any]) -> None:
    with pytest.raises(TransformFailed, match="gone"):
        Transform(spec | {"strict": True}).apply(EVENT, NAMES)


def test_a_payload_has_a_limit() -> None:
    large = Event(EVENT.attributes, json.dumps(["x" * 1_000_000]).encode())
    with pytest.raises(TransformFailed, match="bytes"):
        Transform(filled('["${d}", "${d}"]', {"d": "$.data"})).apply(large, NAMES)


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_text_in_a_template_stays_one_text(value: str, literal: str) -> None:
    template = json.dumps({"k": literal.replace("$", "") + "${v}"})
    event = Event(EVENT.attributes, json.dumps(value).encode())
    try:
        made = Transform(filled(template, {"v": "$.data"})).apply(event, NAMES).body
    except UnicodeEncodeError:  # a lone surrogate is no text
        return
    assert list(json.loads(made)) == ["k"]
