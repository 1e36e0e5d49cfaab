"""The fields of buses, rules and targets, compiled and checked when they are written. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from events.connecting import Place
from events.delivery import RetryPolicy, policy_of
from events.fields import choice, flag, known, number_of
from events.pattern import Pattern
from events.problems import Problem, invalid_config
from events.transform import Template, Transform, Variables
from penstock.errors import PenstockError
from penstock.protocol.topic_names import GATEWAYS_LEVELS, check_publishable
from topicmap.names import InvalidName
from topicmap.queues import topic_named

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
SECRET: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE: Final = re.compile(r"[\x20-\x7e]{0,4096}")
_OWN_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "te", "upgrade", "trailer"}
)
_GIVEN_HEADERS: Final = frozenset({"expect", "content-type", "idempotency-key"})
METHODS: Final = ("POST", "PUT", "PATCH")
PARTS: Final = ("source", "rule", "target", "schema")
"""The kinds of values that a bus has by names. In a path of the HTTP API each has an s behind it."""
VIOLATIONS: Final = ("reject", "flag", "off")


def check_name(name: str, kind: str, form: re.Pattern[str] = NAME) -> str:
    """The name. Raises ``Problem``."""
    if not form.fullmatch(name):
        raise Problem(400, "invalid-name", f"{name!r:.80} is no name of a {kind}: it matches {form.pattern}")
    return name


@dataclass(frozen=True, slots=True)
class Bus:
    """``violations``: the action for an event that breaks its contract."""

    violations: str = "reject"
    description: str = ""

    @classmethod
    def of(cls, spec: object) -> Bus:
        given = known(spec, "bus", "violations", "description")
        return cls(choice(given, "violations", VIOLATIONS), _description(given))


def _description(spec: Mapping[str, Any]) -> str:
    text = spec.get("description", "")
    if not isinstance(text, str) or len(text) > 1_000:
        raise invalid_config("a description is a text of at most 1,000 characters", "/description")
    return text


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled rule. ``pattern``: None wants every event. ``start``: where it begins: ``latest`` is the moment of its
    creation."""

    pattern: Pattern | None
    transform: Transform
    target: str
    retry: RetryPolicy
    is_enabled: bool
    is_ordered: bool
    start: str

    @classmethod
    def of(cls, spec: object) -> Rule:
        names = ("pattern", "transform", "target", "retry", "enabled", "ordered", "start", "description")
        given = known(spec, "rule", *names)
        target = given.get("target")
        if not isinstance(target, str):
            raise invalid_config("a rule names its target", "/target")
        _description(given)
        try:
            pattern = Pattern(given["pattern"]) if given.get("pattern") is not None else None
        except Problem as problem:
            raise invalid_config(problem.detail, "/pattern" + problem.more.get("pointer", "")) from None
        try:
            transform = Transform(given.get("transform"))
        except Problem as problem:
            raise invalid_config(problem.detail, "/transform" + problem.more.get("pointer", "")) from None
        flags = (flag(given, "enabled", True), flag(given, "ordered"))
        return cls(
            pattern,
            transform,
            check_name(target, "target"),
            policy_of(given.get("retry")),
            *flags,
            choice(given, "start", ("latest", "earliest")),
        )


@dataclass(frozen=True, slots=True)
class Http:
    """An HTTP API. ``place``, ``netloc``, ``path``: of its URL, the last with the query. ``secret_headers``: header ->
    name of a file with its value. ``hmac``: name of a file with the key that signs. ``batch``: events in one request,
    as a CloudEvents batch."""

    url: str
    place: Place
    netloc: str
    path: str
    method: str
    headers: Mapping[str, str]
    secret_headers: Mapping[str, str]
    hmac: str
    is_structured: bool
    timeout_s: float
    batch: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the cluster, or a bus."""

    topic: str


@dataclass(frozen=True, slots=True)
class Device:
    """MQTT names of devices, by a template."""

    template: Template
    variables: Variables
    qos: int
    retain: bool


@dataclass(frozen=True, slots=True)
class Target:
    """A compiled target: where, and how much at a time."""

    to: Http | Topic | Device
    concurrency: int
    rate_per_s: float

    @classmethod
    def of(cls, spec: object) -> Target:
        if not isinstance(spec, dict) or spec.get("kind") not in tuple(_KINDS):  # a kind that is a list has no hash
            raise invalid_config(f"a target is an object of the kind {', '.join(_KINDS)}", "/kind")
        names, make = _KINDS[spec["kind"]]
        given = known(spec, f"{spec['kind']} target", "kind", "concurrency", "rate_per_s", "description", *names)
        _description(given)
        concurrency = number_of(given.get("concurrency", 16), "/concurrency", 1, 1_000, whole=True)
        return cls(make(given), concurrency, number_of(given.get("rate_per_s", 0), "/rate_per_s", 0, 1e6))


def _http(spec: Mapping[str, Any]) -> Http:
    url = spec.get("url")
    parts = _checked_url(url)
    headers, secrets = _texts(spec, "headers", _VALUE), _texts(spec, "secret_headers", SECRET)
    for name in (*headers, *secrets):
        if (
            not _TOKEN.fullmatch(name)
            or name.lower() in _OWN_HEADERS | _GIVEN_HEADERS
            or name.lower().startswith(("ce-", "webhook-"))
        ):
            raise invalid_config(f"a target cannot set the header {name!r:.60}", "/headers")
    key = spec.get("hmac", "")
    if key and (not isinstance(key, str) or not SECRET.fullmatch(key)):
        raise invalid_config("hmac is the name of a file in the folder of secrets", "/hmac")
    batch = number_of(spec.get("batch", 1), "/batch", 1, 1_000, whole=True)
    timeout_s = number_of(spec.get("timeout_s", 10), "/timeout_s", 0.1, 300)
    is_structured = choice(spec, "mode", ("binary", "structured")) == "structured"
    method = choice(spec, "method", METHODS)
    netloc, path = parts.netloc, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Http(
        str(url), Place.of(parts), netloc, path, method, headers, secrets, str(key), is_structured, timeout_s, batch
    )


def _checked_url(url: object) -> SplitResult:
    """The parts of a target's URL. Raises ``Problem``."""
    if not isinstance(url, str) or len(url) > 2_048 or not re.fullmatch(r"[!-~]+", url):
        raise invalid_config("url is the address of an HTTP API, in ASCII", "/url")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise invalid_config(f"{url:.80}: {error}", "/url") from None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or parts.fragment or port == 0:
        raise invalid_config("url is http:// or https:// with a host, without user and fragment", "/url")
    return parts


def _texts(spec: Mapping[str, Any], name: str, form: re.Pattern[str]) -> Mapping[str, str]:
    given = spec.get(name, {})
    if not isinstance(given, dict) or len(given) > 64:
        raise invalid_config(f"{name} is an object of at most 64 texts", f"/{name}")
    for key, value in given.items():
        if not isinstance(value, str) or not form.fullmatch(value):
            raise invalid_config(f"{value!r:.60} cannot stand there", f"/{name}/{key}")
    return given


def _topic(spec: Mapping[str, Any]) -> Topic:
    try:
        topic = topic_named(spec.get("topic", ""))
        check_publishable(topic, "")
    except (InvalidName, TypeError, AttributeError):
        raise invalid_config("topic is the name of a topic", "/topic") from None
    except PenstockError as error:
        raise invalid_config(error.message, "/topic") from None
    return Topic(topic)


def _device(spec: Mapping[str, Any]) -> Device:
    variables = Variables(spec)
    try:
        template = Template(spec.get("mqtt_topic"), variables.names, as_json=False)
    except Problem as problem:
        raise invalid_config(problem.detail, "/mqtt_topic") from None
    if str(spec.get("mqtt_topic")).partition("/")[0] in GATEWAYS_LEVELS:
        raise invalid_config("only services of the cluster publish there", "/mqtt_topic")
    qos = number_of(spec.get("qos", 1), "/qos", 0, 2, whole=True)
    return Device(template, variables, qos, flag(spec, "retain"))


_KINDS: Final[Mapping[str, Any]] = {
    "http": (("url", "method", "headers", "secret_headers", "hmac", "mode", "timeout_s", "batch"), _http),
    "topic": (("topic",), _topic),
    "device": (("mqtt_topic", "variables", "qos", "retain"), _device),
}
