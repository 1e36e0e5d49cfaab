from __future__ import annotations

from typing import Any

import pytest

from events.contracts import Contract, incompatibilities
from events.problems import Problem

OLD = {
    "type": "object",
    "required": ["n"],
    "properties": {
        "n": {"type": "integer", "minimum": 0},
        "s": {"enum": ["a", "b"]},
        "l": {"items": {"type": "string"}},
    },
}


def changed(**members: Any) -> dict[str, Any]:
    return OLD | members


def with_field(name: str, schema: Any) -> dict[str, Any]:
    return changed(properties=OLD["properties"] | {name: schema})  # type: ignore[operator]


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        {},
        True,
        changed(title="other words"),
        changed(required=[]),
        changed(type=["object", "null"]),
        with_field("n", {"type": "number", "minimum": -1}),
        with_field("s", {"enum": ["a", "b", "c"]}),
        with_field("new", {"type": "string"}),
        with_field("l", {"items": {"type": ["string", "null"]}}),
        {"type": "object", "properties": {}},
    ],
)
def test_a_schema_that_takes_all_that_the_old_one_took_is_compatible(new: Any) -> None:
    assert incompatibilities(OLD, new) == []


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (False, "/: what was allowed"),
        (changed(type="array"), "/: the type object"),
        (changed(required=["n", "s"]), "/: s was not required"),
        (changed(additionalProperties=False), "/*: what was allowed"),
        (changed(minProperties=1), "/: minProperties is higher"),
        (changed(anyOf=[{}]), "/: a change of anyOf"),
        (with_field("n", {"type": "integer", "minimum": 1}), "/n: minimum is higher"),
        (with_field("n", {"type": "integer", "minimum": 0, "maximum": 9}), "/n: maximum is lower"),
        (with_field("n", {"type": "string"}), "/n: the type integer"),
        (with_field("s", {"enum": ["a"]}), "/s: enum leaves out"),
        (with_field("s", {"const": "a"}), "/s: const leaves out"),
        (with_field("l", {"items": {"type": "integer"}}), "/l/items: the type string"),
        ({"required": ["n"], "properties": {}, "additionalProperties": False}, "/n: what was allowed"),
    ],
)
def test_a_schema_that_takes_less_is_not(new: Any, told: str) -> None:
    assert any(one.startswith(told) for one in incompatibilities(OLD, new)), incompatibilities(OLD, new)


def test_data_that_breaks_its_contract_is_told_where() -> None:
    assert Contract(OLD).faults({"n": 1}) == []
    assert Contract(OLD).faults({"n": -1, "s": "c"})[0].startswith("/n: -1 is less than")


@pytest.mark.parametrize(
    "schema",
    [
        "x",
        1,
        {"type": "nothing"},
        {"$ref": "http://127.0.0.1/schema"},
        {"$ref": "#/gone"},
        {"$ref": "x#/$defs/a"},
        {"pattern": "("},
        {"pattern": "(?=a)b"},
    ],
)
def test_what_is_no_schema_or_leads_outside_is_refused(schema: Any) -> None:
    with pytest.raises(Problem):
        Contract(schema)


def test_a_regular_expression_takes_no_longer_than_its_text_is() -> None:
    slow = {"pattern": "^(a+)+$", "patternProperties": {"^(b+)+$": True}, "additionalProperties": False}
    assert Contract(slow).faults("a" * 10_000 + "!")[0].startswith("/: ")
    assert Contract(slow).faults({"b" * 10_000 + "!": 1})[0].startswith("/: Additional properties")


def test_a_schema_that_refers_to_itself_ends() -> None:
    assert Contract({"allOf": [{"$ref": "#"}]}).faults({}) == []
    tree = Contract({"type": "object", "additionalProperties": {"$ref": "#"}})
    assert tree.faults({"a": {"b": 1}})[0].startswith("/a/b: ")
