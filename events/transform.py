"""The content for a target: all of the event, a part by JSONPath (RFC 9535), a constant, or a filled template.

A transform is compiled once and checked then. Templates have ``${name}``: in a JSON template a place inside a text
takes the value's text, escaped, and a place outside takes the value as JSON. No code runs. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson
from jsonpath import JSONPath
from jsonpath.exceptions import JSONPathError

from events.cloudevents import JSON, Event, is_json
from events.fields import flag, known
from events.paths import BoundedPaths, TooManyNodes, check_filters, nodes_of
from events.problems import invalid_config

PATH_CHARACTERS_MAX: Final = 1_024
NODES_MAX: Final = 1_000
VARIABLES_MAX: Final = 100
TEMPLATE_CHARACTERS_MAX: Final = 65_536
OUTPUT_BYTES_MAX: Final = 1024 * 1024

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PLACE: Final = re.compile(r"\$(?:(\$)\{|\{([^{}]*)\})")
_STEP: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\['([^'\\]*)'\]|\[(0|[1-9][0-9]{0,8})\]")
_PATHS: Final = BoundedPaths(strict=True)
_NOTHING: Final = object()

Read = Callable[[Mapping[str, Any]], Any]
"""The value that a path finds in an event's document; ``_NOTHING`` for none."""


class Payload(NamedTuple):
    """The content for the target. ``is_event``: the body is the data of the event itself, whose attributes go with
    it."""

    body: bytes
    content_type: str
    is_event: bool = False


class TransformFailed(Exception):
    """An event from which a transform cannot make a payload; trying again does not help."""


class Transform:
    """A compiled transform. ``spec``: as configuration has it; none is the complete event. Raises ``Problem``."""

    def __init__(self, spec: object = None) -> None:
        if spec is None:
            spec = {"kind": "complete"}
        if not isinstance(spec, dict) or spec.get("kind") not in tuple(_KINDS):  # a kind that is a list has no hash
            raise invalid_config(f"a transform is an object with a kind: {', '.join(_KINDS)}", "/kind")
        kind = spec["kind"]
        names, make = _KINDS[kind]
        self._apply = make(known(spec, f"{kind} transform", "kind", *names))

    def apply(self, event: Event, names: Mapping[str, Any] | None = None) -> Payload:
        """The payload. ``names``: further variables of templates, as bus and rule. Raises ``TransformFailed``."""
        payload = self._apply(event, names or {})
        if len(payload.body) > OUTPUT_BYTES_MAX and not payload.is_event:
            raise TransformFailed(f"the payload has {len(payload.body)} bytes, at most {OUTPUT_BYTES_MAX} are allowed")
        return payload


_Apply = Callable[[Event, Mapping[str, Any]], Payload]
OWN_VARIABLES: Final = ("bus", "rule", "event")
"""The names that every template has."""


def _complete(_: Mapping[str, Any]) -> _Apply:
    return lambda event, _: Payload(event.data or b"", event.attributes.get("datacontenttype", ""), True)


def _partial(spec: Mapping[str, Any]) -> _Apply:
    read, is_strict, path = compiled_path(spec.get("path"), "/path"), flag(spec, "strict"), spec.get("path")

    def apply(event: Event, _: Mapping[str, Any]) -> Payload:
        found = read(event.document())
        if found is _NOTHING and is_strict:
            raise TransformFailed(f"the event has nothing at {path}")
        return Payload(orjson.dumps(_value_of(found)), JSON)

    return apply


def _constant(spec: Mapping[str, Any]) -> _Apply:
    if "value" not in spec:
        raise invalid_config("a constant has a value", "/value")
    kind, value = _content_type(spec), spec["value"]
    if is_json(kind):
        body = orjson.dumps(value)
    elif isinstance(value, str):
        body = value.encode()
    else:
        raise invalid_config(f"a value of the type {kind} is text", "/value")
    if len(body) > TEMPLATE_CHARACTERS_MAX:
        raise invalid_config(f"a constant has at most {TEMPLATE_CHARACTERS_MAX} bytes", "/value")
    payload = Payload(body, kind)
    return lambda _, __: payload


def _filled(spec: Mapping[str, Any]) -> _Apply:
    kind, is_strict, variables = _content_type(spec), flag(spec, "strict"), Variables(spec)
    for name in variables.names:
        if not _NAME.fullmatch(name) or name in OWN_VARIABLES:
            raise invalid_config(f"{name!r:.60} cannot be the name of a variable", "/variables")
    text = spec.get("template")
    if is_json(kind) and not isinstance(text, str) and text is not None:
        text = re.sub(r'"(\$\{[^{}"]*\})"', r"\1", orjson.dumps(text).decode())
    template = Template(text, (*variables.names, *OWN_VARIABLES), as_json=is_json(kind))

    def apply(event: Event, names: Mapping[str, Any]) -> Payload:
        document = event.document()
        values = dict.fromkeys(OWN_VARIABLES) | dict(names) | {"event": document}
        return Payload(template.fill(values | variables.values(document, is_strict=is_strict)), kind)

    return apply


_KINDS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], _Apply]]]] = {
    "complete": ((), _complete),
    "jsonpath": (("path", "strict"), _partial),
    "constant": (("value", "content_type"), _constant),
    "template": (("template", "variables", "content_type", "strict"), _filled),
}


def _content_type(spec: Mapping[str, Any]) -> str:
    kind = spec.get("content_type", JSON)
    if not isinstance(kind, str) or not re.fullmatch(r"[!-~]+/[!-~]+( *; *[!-~]+)*", kind) or len(kind) > 256:
        raise invalid_config(f"{kind!r:.60} is no media type", "/content_type")
    return kind


def compiled_path(path: object, where: str) -> Read:
    """A path of RFC 9535. One that names a single place finds its value, any other the array of all that it finds.
    Raises ``Problem``."""
    if not isinstance(path, str) or len(path) > PATH_CHARACTERS_MAX:
        raise invalid_config(f"a path is a text of at most {PATH_CHARACTERS_MAX} characters", where)
    try:
        compiled = _PATHS.compile(path)
    except (JSONPathError, RecursionError, ValueError) as error:
        raise invalid_config(f"{path!r:.80} is no JSONPath: {error}", where) from None
    steps = _steps(path)
    if steps is not None:
        return lambda document: _walk(steps, document)

    if not isinstance(compiled, JSONPath):
        raise invalid_config(f"{path!r:.80} is more than one path", where)
    try:
        check_filters(compiled)
    except ValueError as error:
        raise invalid_config(f"{path!r:.80}: {error}", where) from None

    def read(document: Mapping[str, Any]) -> Any:
        try:
            return [node.obj for node in islice(nodes_of(compiled, document), NODES_MAX)]
        except (JSONPathError, RecursionError, TooManyNodes) as error:
            raise TransformFailed(f"{path:.80} cannot be read of the event: {error}") from None

    return read


def _value_of(found: Any) -> Any:
    """The found value of a path in JSON; ``None`` without one."""
    return None if found is _NOTHING else found


def _steps(path: str) -> list[str | int] | None:
    """The names and places of a path that has nothing else; None for other paths."""
    at, steps = 1, list[str | int]()
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        at = step.end()
        steps.append(int(step[3]) if step[3] is not None else step[1] if step[1] is not None else step[2])
    return steps


def _walk(steps: list[str | int], value: Any) -> Any:
    for step in steps:
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return _NOTHING
        elif not isinstance(value, list) or step >= len(value):
            return _NOTHING
        value = value[step]
    return value


class Variables:
    """The paths under ``variables`` of a value: the variables of templates. Raises ``Problem``.

    Attributes:
        names: of the variables.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        paths = spec.get("variables", {})
        if not isinstance(paths, dict) or len(paths) > VARIABLES_MAX:
            raise invalid_config(f"variables are an object of at most {VARIABLES_MAX} paths", "/variables")
        self.names = tuple(paths)
        self._paths = paths
        self._reads = {name: compiled_path(path, f"/variables/{name}") for name, path in paths.items()}

    def values(self, document: Mapping[str, Any], *, is_strict: bool = False) -> dict[str, Any]:
        """The values that the paths find; None without one, or ``TransformFailed`` if ``is_strict``."""
        values = {}
        for name, read in self._reads.items():
            found = read(document)
            if found is _NOTHING and is_strict:
                raise TransformFailed(f"the event has nothing at {self._paths[name]} for the variable {name}")
            values[name] = _value_of(found)
        return values


class Template:
    """A text with places, compiled.

    Args:
        text: with ``${name}``; ``$${`` stands for ``${``.
        names: that may stand in it.
        as_json: the filled text is JSON.

    Raises:
        Problem: an unknown name, no text, or what would be no JSON.
    """

    def __init__(self, text: object, names: tuple[str, ...], *, as_json: bool) -> None:
        if not isinstance(text, str) or len(text) > TEMPLATE_CHARACTERS_MAX:
            raise invalid_config(f"a template is a text of at most {TEMPLATE_CHARACTERS_MAX} characters", "/template")
        self._parts: list[tuple[str, str, bool]] = []  # literal, the name behind it, whether that is inside a text
        self._as_json = as_json
        literal, at, inside = "", 0, False
        for place in _PLACE.finditer(text):
            literal += text[at : place.start()]
            at = place.end()
            if place[1]:
                literal += "${"
                continue
            if place[2] not in names:
                known = ", ".join(names)
                raise invalid_config(f"the template names {place[2]!r:.60}, which is none of {known}", "/template")
            inside = as_json and _ends_inside(literal, inside)
            self._parts.append((literal, place[2], inside))
            literal = ""
        self._rest = literal + text[at:]
        if as_json:
            try:
                orjson.loads(self.fill(dict.fromkeys(names)))
            except orjson.JSONDecodeError as error:
                raise invalid_config(f"the template does not make JSON: {error}", "/template") from None

    def fill(self, values: Mapping[str, Any]) -> bytes:
        """The text with these values."""
        out = bytearray()
        for literal, name, inside in self._parts:
            out += literal.encode("utf-8", "replace")
            value = values[name]
            if not self._as_json:
                out += plain_text(value)
            elif inside:
                out += orjson.dumps(plain_text(value).decode())[1:-1]
            else:
                out += orjson.dumps(value)
        return bytes(out + self._rest.encode("utf-8", "replace"))


def plain_text(value: Any) -> bytes:
    """A value as text: itself if it is text, nothing for nothing, else its JSON."""
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


def _ends_inside(literal: str, inside: bool) -> bool:
    """Whether a piece of JSON ends inside of a text, if it begins ``inside`` of one or not."""
    at = 0
    while at < len(literal):
        if inside and literal[at] == "\\":
            at += 1
        elif literal[at] == '"':
            inside = not inside
        at += 1
    return inside
