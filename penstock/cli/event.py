"""``penstock event``: configuration and dead letters of an event bridge, over its HTTP face."""

from __future__ import annotations

import json
import ssl
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

import click
from click.decorators import pass_meta_key

from penstock.cli.display import confirm, json_option, print_json, print_rows
from penstock.client.credentials import Credentials, credentials_of
from penstock.errors import InvalidRequest, NotAuthorized, PenstockError, TopicNotFound, Unavailable
from penstock.protocol.addresses import is_loopback
from penstock.world import new_rng

ANSWER_S: Final = 60.0
ADDRESS: Final = "127.0.0.1:8095"
STRUCTURED: Final = "application/cloudevents+json"
EMPTY: Final = "none"
_TLS: Final = "set PENSTOCK_TLS to the authority's certificate, or 1"
_LOGIN: Final = "set PENSTOCK_USER and PENSTOCK_CLIENT_PASSWORD_FILE, or PENSTOCK_CLIENT_TOKEN_FILE"
FACE: Final = "penstock.events"
"""Key in a click context's ``meta``: the ``Face`` that commands ask."""
_pass_face: Final = pass_meta_key(FACE)


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: a login would go along."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Face:
    """The HTTP face of an event bridge at ``host:port``."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        scheme = "http" if credentials.tls is None else "https"
        self._base = (address if "://" in address else f"{scheme}://{address}").rstrip("/")
        tls = credentials.tls or ssl.create_default_context()
        self._login: dict[str, str] = {}
        if credentials.token:
            self._login = {"authorization": f"Bearer {credentials.token}"}
        elif credentials.user:
            shown = b64encode(f"{credentials.user}:{credentials.password}".encode()).decode()
            self._login = {"authorization": f"Basic {shown}"}
        target = urlsplit(self._base)
        if self._login and target.scheme != "https" and not is_loopback(target.hostname or ""):
            raise NotAuthorized("a password or token goes over TLS only, or within this machine", hint=_TLS)
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=tls), _NoRedirects())

    def ask(self, method: str, path: str, value: Any = None, kind: str = "application/json") -> Any:
        """The answer's JSON. Raises ``PenstockError`` for a problem, with what it says."""
        body = None if value is None else json.dumps(value).encode()
        request = Request(self._base + path, body, {"content-type": kind} | self._login, method=method)
        try:
            with self._opener.open(request, timeout=ANSWER_S) as answer:
                raw = answer.read()
            return json.loads(raw) if raw else None
        except HTTPError as error:
            raise _told(error.code, error.read()) from None
        except (OSError, ValueError) as error:
            hint = "is it running? `penstock up --events-port 8095` starts one; `--events HOST:PORT` names another"
            raise Unavailable(f"no event bridge answers at {self._base}: {error}", hint=hint) from None


def _told(status: int, body: bytes) -> PenstockError:
    """The error that a problem document is."""
    try:
        problem = json.loads(body)
        words = str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        problem, words = {}, f"HTTP {status}"
    more = problem.get("pointer") or problem.get("faults") or problem.get("incompatibilities") or problem.get("rules")
    hint = f"at {more}" if isinstance(more, str) else "; ".join(map(str, more or ()))
    if status in (401, 403):
        return NotAuthorized(words, hint=_LOGIN if status == 401 else str(problem.get("hint", "")))
    if status == 404:
        return TopicNotFound(words, hint=hint)
    return InvalidRequest(words, hint=hint) if status < 500 else Unavailable(words, hint=hint)


@click.group()
@click.option("--events", "address", default=ADDRESS, envvar="PENSTOCK_EVENTS_ADDRESS", metavar="HOST:PORT")
@click.pass_context
def event(context: click.Context, address: str) -> None:
    """Carry events by rules to any HTTP API: needs `penstock up --events-port 8095`.

    \b
    Examples:
      penstock event target put default hook '{"kind": "http", "url": "https://api.example.com/in"}'
      penstock event rule put default hot '{"target": "hook", "pattern": {"type": ["reading"]}}'
      penstock event send default '{"celsius": 21}' --type reading
      penstock event dlq list default hot
    """
    context.meta[FACE] = Face(address, credentials_of())


def _place(bus: str, kind: str, name: str) -> str:
    return f"/v1/buses/{quote(bus, safe='')}" + (f"/{kind}s/{quote(name, safe='')}" if kind != "bus" else "")


def _given(text: str) -> Any:
    """The JSON that a person gives: as it stands, ``@FILE``, or ``-`` for the standard input."""
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text()
        return json.loads(text)
    except (OSError, ValueError) as error:
        raise InvalidRequest(
            f"this is no JSON: {error}", hint="give JSON, @FILE, or - for the standard input"
        ) from None


_RULE_COLUMNS: Final = ("name", "target", "state", "matched", "delivered", "failed", "dead", "trouble")


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row for people: of a rule its target, and what the instance that was asked has done for it."""
    spec = row["spec"]
    known = {**row, **row.get("here", {}), "target": spec.get("target", ""), "spec": json.dumps(spec)}
    return dict.fromkeys(_RULE_COLUMNS, "") | known


def _group_of(kind: str, what: str, example: str) -> click.Group:
    """The commands of one kind of configuration."""
    name_of: Decorator = click.argument("name") if kind != "bus" else _without_name
    group = click.Group(kind, help=f"List, show, write and delete {what}.")

    @group.command("list", help=f"List {what}" + (" of BUS." if kind != "bus" else "."))
    @_bus_if(kind != "bus")
    @json_option
    @_pass_face
    def list_all(face: Face, as_json: bool, bus: str = "") -> None:
        rows = face.ask("GET", f"/v1/buses/{quote(bus, safe='')}/{kind}s" if bus else "/v1/buses")
        columns = _RULE_COLUMNS if kind == "rule" else ("name", "revision", "spec")
        print_rows(rows if as_json else [_shown(one) for one in rows], columns, as_json=as_json, empty=EMPTY)

    @group.command("show", help=f"Show one of the {what}, as JSON.")
    @click.argument("bus")
    @name_of
    @_pass_face
    def show(face: Face, bus: str, name: str = "") -> None:
        print_json(face.ask("GET", _place(bus, kind, name)))

    @group.command("put", help=f"Write one of the {what}. SPEC is JSON, @FILE or - as in:\n\n{example}")
    @click.argument("bus")
    @name_of
    @click.argument("spec", default="{}" if kind == "bus" else ...)
    @_pass_face
    def put(face: Face, bus: str, spec: str, name: str = "") -> None:
        print_json(face.ask("PUT", _place(bus, kind, name), _given(spec)))

    @group.command("delete", help=f"Delete one of the {what}.")
    @click.argument("bus")
    @name_of
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @_pass_face
    def delete(face: Face, bus: str, yes: bool, name: str = "") -> None:
        shown = f"{kind} {name} of {bus}" if name else f"bus {bus}"
        if not yes:
            confirm(f"delete the {shown}?", f"the {shown} is still there")
        face.ask("DELETE", _place(bus, kind, name))
        click.echo(f"the {shown} is deleted")

    return group


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _without_name(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _bus_if(wanted: bool) -> Decorator:
    return click.argument("bus", default="default") if wanted else _without_name


_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "bus": ("buses", "penstock event bus put orders"),
    "source": ("sources", 'penstock event source put default plant \'{"topic": "plant"}\''),
    "rule": ("rules", 'penstock event rule put default hot \'{"target": "hook", "pattern": {"type": ["t"]}}\''),
    "target": ("targets", 'penstock event target put default hook \'{"kind": "http", "url": "https://..."}\''),
    "schema": ("contracts", 'penstock event schema put default t \'{"schema": {"required": ["n"]}}\''),
}
_GROUPS: Final = {kind: _group_of(kind, *told) for kind, told in _KINDS.items()}
for _one in _GROUPS.values():
    event.add_command(_one)


@_GROUPS["rule"].command("test")
@click.argument("bus")
@click.argument("name")
@click.argument("given", metavar="EVENT")
@_pass_face
def test_rule(face: Face, bus: str, name: str, given: str) -> None:
    """Test a rule with EVENT (JSON, @FILE or -); nothing is sent."""
    print_json(face.ask("POST", _place(bus, "rule", name) + "/test", _given(given), STRUCTURED))


@event.command("send")
@click.argument("bus")
@click.argument("data")
@click.option("--type", "of_type", required=True, help="The event's type.")
@click.option("--source", default="/penstock/cli", help="Where it comes from.")
@click.option("--subject", default="", help="The event's subject.")
@_pass_face
def send(face: Face, bus: str, data: str, of_type: str, source: str, subject: str) -> None:
    """Send one event to BUS; DATA is JSON, @FILE or -."""
    made = {"specversion": "1.0", "id": f"{new_rng().getrandbits(64):016x}", "source": source, "type": of_type}
    made |= {"subject": subject} if subject else {}
    sent = face.ask("POST", _place(bus, "bus", "") + "/events", made | {"data": _given(data)}, STRUCTURED)
    print_json(sent["events"][0])


@event.command("types")
@click.argument("bus", default="default")
@json_option
@_pass_face
def types(face: Face, bus: str, as_json: bool) -> None:
    """List the types of events that came to BUS or have a contract, with producers and rules."""
    rows = face.ask("GET", _place(bus, "bus", "") + "/types")
    print_rows(rows, ("type", "seen", "producers", "rules", "schema"), as_json=as_json, empty=EMPTY)


@event.group()
def dlq() -> None:
    """List the dead letters of a rule, and deliver them again."""


@dlq.command("list")
@click.argument("bus")
@click.argument("rule")
@json_option
@_pass_face
def list_letters(face: Face, bus: str, rule: str, as_json: bool) -> None:
    """List the dead letters of RULE, with the reason of each."""
    rows = face.ask("GET", _place(bus, "rule", rule) + "/dead-letters")
    print_rows(rows, ("id", "type", "subject", "attempts", "reason"), as_json=as_json, empty=EMPTY)


@dlq.command("redrive")
@click.argument("bus")
@click.argument("rule")
@click.option("--again", is_flag=True, help="Also those that were sent again before.")
@_pass_face
def redrive(face: Face, bus: str, rule: str, again: bool) -> None:
    """Deliver the dead letters of RULE to its target again."""
    told = face.ask("POST", f"{_place(bus, 'rule', rule)}/redrive?again={'true' if again else 'false'}")
    print_json(told)
    if told["status"] != "SUCCESS":
        raise PenstockError(f"{told['failed']} dead letters were not sent again")
