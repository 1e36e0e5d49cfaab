"""The OpenAPI document of the HTTP face. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from events.cloudevents import BATCH, REQUIRED, STRUCTURED
from events.problems import PROBLEM_TYPE
from events.specs import NAME, PARTS, TYPE
from penstock.version import VERSION

_EVENT: Final = {
    "type": "object",
    "required": list(REQUIRED),
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1},
        "source": {"type": "string", "minLength": 1},
        "type": {"type": "string", "minLength": 1},
        "data": {},
    },
}
_REF: Final = {"$ref": "#/components/schemas/Event"}
_EVENTS: Final = {STRUCTURED: {"schema": _REF}, BATCH: {"schema": {"type": "array", "items": _REF}}}
_OBJECT: Final = {"application/json": {"schema": {"type": "object"}}}
_NAME: Final = {"type": "string", "pattern": f"^{NAME.pattern}$"}
_TYPE: Final = {"type": "string", "pattern": f"^{TYPE.pattern}$"}
_WRONG: Final = (400, 401, 403, 404, 408, 409, 412, 413, 415, 421, 422, 429, 500, 503)


def _operation(summary: str, done: Mapping[int, Any], body: Any = None, parameters: Any = ()) -> dict[str, Any]:
    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
    answers: dict[str, Any] = {
        str(status): {"description": "Done."} | ({"content": {"application/json": {"schema": one}}} if one else {})
        for status, one in done.items()
    }
    for status in _WRONG:
        answers[str(status)] = {"description": "A problem.", "content": {PROBLEM_TYPE: problem}}
    found: dict[str, Any] = {"summary": summary, "responses": answers}
    if body is not None:
        found["requestBody"] = {"required": True, "content": body}
    return found | ({"parameters": list(parameters)} if parameters else {})


def _in_path(name: str, schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(name: str, schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _value(kind: str, parameters: list[Any]) -> dict[str, Any]:
    return {
        "parameters": parameters,
        "get": _operation(f"Show a {kind}", {200: {"type": "object"}}),
        "put": _operation(
            f"Write a {kind}; If-Match names the revision that it replaces",
            {200: {"type": "object"}, 201: {"type": "object"}},
            _OBJECT,
        ),
        "delete": _operation(f"Remove a {kind}", {204: None}),
    }


def document() -> dict[str, Any]:
    """The document."""
    bus, rows = _in_path("bus", _NAME), {"type": "array"}
    taken = {"type": "object", "required": ["events"]}
    one, named = "/v1/buses/{bus}", [bus, _in_path("name", _NAME)]
    paths: dict[str, Any] = {
        "/putEvents": {
            "post": _operation("Take events in, as RocketMQ EventBridge does", {200: {"type": "object"}}, _EVENTS)
        },
        "/v1/types": {"get": _operation("List the types of events", {200: rows})},
        "/v1/test": {"post": _operation("Try a rule that is not written yet", {200: {"type": "object"}}, _OBJECT)},
        "/v1/buses": {"get": _operation("List buses", {200: rows})},
        one: _value("bus", [bus]),
        one + "/events": {"parameters": [bus], "post": _operation("Take events in", {202: taken}, _EVENTS)},
        one + "/types": {"parameters": [bus], "get": _operation("List the types of a bus", {200: rows})},
        one + "/rules/{name}/test": {
            "parameters": named,
            "post": _operation(
                "Try a rule: nothing is sent", {200: {"type": "object"}}, {STRUCTURED: {"schema": _REF}}
            ),
        },
        one + "/rules/{name}/dead-letters": {
            "parameters": named,
            "get": _operation(
                "List dead letters",
                {200: rows},
                parameters=[_in_query("count", {"type": "integer", "minimum": 1, "maximum": 9999})],
            ),
        },
        one + "/rules/{name}/redrive": {
            "parameters": named,
            "post": _operation(
                "Deliver dead letters again",
                {200: {"type": "object"}},
                parameters=[_in_query("again", {"type": "boolean"})],
            ),
        },
    }
    for kind in PARTS:
        place = [bus, _in_path("name", _TYPE if kind == "schema" else _NAME)]
        paths[f"{one}/{kind}s"] = {"parameters": [bus], "get": _operation(f"List {kind}s", {200: rows})}
        paths[f"{one}/{kind}s/{{name}}"] = _value(kind, place)
    problem = {
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {"type": {"type": "string"}, "status": {"type": "integer"}, "detail": {"type": "string"}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock events", "version": VERSION},
        "paths": paths,
        "components": {"schemas": {"Event": _EVENT, "Problem": problem}},
    }
