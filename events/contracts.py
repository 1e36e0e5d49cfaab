"""Contracts: JSON Schemas of event types, their versions, and whether a new version takes what an old one took.

Compatibility is judged by structure, for what most schemas consist of; where a change cannot be judged so, it is not
called compatible. A field that the old version does not name is taken as absent from old events. Regular expressions
are those of Rust, whose time grows only with the text. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from jsonschema_rs import Draft202012Validator, ReferencingError, RegexOptions, ValidationError

from events.problems import invalid_config

LEVELS_MAX: Final = 32
SCHEMA_NODES_MAX: Final = 10_000
FAULTS_MAX: Final = 5
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_WORDS: Final = frozenset({"title", "description", "default", "examples", "$comment", "$id", "$schema", "deprecated"})
_JUDGED: Final = frozenset(
    {"type", "enum", "const", "required", "properties", "additionalProperties", "items", *_UPPER, *_LOWER}
)


class Contract:
    """One version of a type's schema, compiled. Raises ``Problem`` for a value that is no JSON Schema of draft 2020-12,
    or that refers to others."""

    def __init__(self, schema: object) -> None:
        if not isinstance(schema, dict | bool):
            raise invalid_config(f"a schema is a JSON object, not {type(schema).__name__}", "/schema")
        for at, (name, value) in enumerate(_members(schema, 0)):
            if at >= SCHEMA_NODES_MAX:
                raise invalid_config(f"a schema has at most {SCHEMA_NODES_MAX} members", "/schema")
            if name in ("$ref", "$dynamicRef") and not (isinstance(value, str) and value.startswith("#")):
                raise invalid_config(f"{name} refers to a place within the schema, not to {value!r:.80}", "/schema")
        try:
            self._validator = Draft202012Validator(schema, pattern_options=RegexOptions(), retriever=_no_retriever)
        except (ValidationError, ReferencingError) as error:
            raise invalid_config(f"this is no JSON Schema: {error.message:.200}", "/schema") from None
        except ValueError as error:
            raise invalid_config(f"this schema cannot be used: {error!s:.200}", "/schema") from None

    def faults(self, value: Any) -> list[str]:
        """The faults of data by the contract; empty without any."""
        try:
            return [_told(error) for error in islice(self._validator.iter_errors(value), FAULTS_MAX)]
        except ValueError as error:
            return [f"/: {error!s:.200}"]


def _told(error: ValidationError) -> str:
    place = "/".join([str(part) for part in error.instance_path])
    return f"/{place}: {error.message:.200}"


def _no_retriever(uri: str) -> Any:
    raise ValueError(f"{uri} is not in the schema")


def _members(value: object, level: int) -> Iterator[tuple[str, object]]:
    if level > LEVELS_MAX:
        raise invalid_config(f"a schema has at most {LEVELS_MAX} levels", "/schema")
    if isinstance(value, dict):
        for name, one in value.items():
            yield name, one
            yield from _members(one, level + 1)
    elif isinstance(value, list):
        for one in value:
            yield from _members(one, level + 1)


def incompatibilities(old: object, new: object, where: str = "") -> list[str]:
    """The reasons why data that satisfies ``old`` may break ``new``; empty if it cannot."""
    if new is True or new == {} or old == new or old is False:
        return []
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [f"{where or '/'}: what was allowed is not any more"]
    found = [*_of_types(old, new, where), *_of_bounds(old, new, where), *_of_fields(old, new, where)]
    for name in sorted((old.keys() | new.keys()) - _JUDGED - _WORDS):
        if name in new and old.get(name) != new[name]:
            found.append(f"{where or '/'}: a change of {name} cannot be shown to be compatible")
    if isinstance(new.get("items"), dict | bool):
        found += incompatibilities(old.get("items", True), new["items"], f"{where}/items")
    return found


def _of_types(old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[str]:
    if "type" in new:
        lost = _types(old) - _types(new)
        if lost - ({"integer"} if "number" in _types(new) else set()):
            yield f"{where or '/'}: the type {', '.join(sorted(lost))} is not allowed any more"
    for name in ("enum", "const"):
        if name in new:
            allowed = new["enum"] if name == "enum" else [new["const"]]
            before = old["enum"] if "enum" in old else [old["const"]] if "const" in old else None
            if before is None or any(one not in allowed for one in before):
                yield f"{where or '/'}: {name} leaves out values that were allowed"


_ALL_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})


def _types(schema: dict[str, Any]) -> set[str]:
    given = schema.get("type", _ALL_TYPES)
    return {given} if isinstance(given, str) else set(given)


def _of_bounds(old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[str]:
    for name in _UPPER:
        if name in new and (name not in old or old[name] > new[name]):
            yield f"{where or '/'}: {name} is lower than it was"
    for name in _LOWER:
        if name in new and (name not in old or old[name] < new[name]):
            yield f"{where or '/'}: {name} is higher than it was"


def _of_fields(old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[str]:
    added = sorted(set(new.get("required", [])) - set(old.get("required", [])))
    if added:
        yield f"{where or '/'}: {', '.join(added)} was not required"
    before, after = old.get("properties", {}), new.get("properties", {})
    rest_before, rest_after = old.get("additionalProperties", True), new.get("additionalProperties", True)
    for name in sorted(before.keys() & after.keys()):
        yield from incompatibilities(before[name], after[name], f"{where}/{name}")
    for name in sorted(before.keys() - after.keys()):
        yield from incompatibilities(before[name], rest_after, f"{where}/{name}")
    yield from incompatibilities(rest_before, rest_after, f"{where}/*")
