"""The HTTP face: events in, configuration in and out. An ASGI application of starlette; errors are problem details.

It decides little: bytes to values, a call, values to bytes. Every request passes ``Callers``, and all but
``/openapi.json`` pass ``HttpLogins``, before the body is read, of which there are at most ``body_bytes_max``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import orjson
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from events.callers import Callers
from events.cloudevents import BATCH, Event, from_http
from events.desk import Desk, verdict
from events.facts import ANY, NONE
from events.ingest import Ingest
from events.json_text import NotJson, read_json
from events.openapi import document
from events.problems import PROBLEM_TYPE, Problem, invalid_config
from events.specs import PARTS
from penstock.access.acl import ADMIN, PRODUCE, VIEW
from penstock.access.policy import CLUSTER
from penstock.errors import PenstockError
from penstock.service.http_logins import HttpLogins

DEFAULT_BUS: Final = "default"
BODY_S: Final = 60.0
"""Seconds that the body of a request may take."""
Handler = Callable[[Request], Awaitable[Response]]
_log = logging.getLogger(__name__)


def answer(status: int, value: Any, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(orjson.dumps(value), status, headers, "application/json")


def problem_answer(problem: Problem) -> Response:
    """The answer that a problem is."""
    headers = {"www-authenticate": problem.challenge} if problem.challenge else None
    return Response(orjson.dumps(problem.document()), problem.status, headers, PROBLEM_TYPE)


class Face:
    """The routes. ``app`` is what a server runs.

    A request without a right is refused before its body is read; ``/putEvents`` names its buses in the body, so only
    its login is checked before. To send events takes ``produce`` on the bus; to look takes ``view`` of the cluster, and
    to change ``admin``: a rule reads and writes any topic.
    """

    def __init__(
        self,
        desk: Desk,
        ingest: Ingest,
        callers: Callers,
        logins: HttpLogins,
        body_bytes_max: int,
        body_s: float = BODY_S,
    ) -> None:
        self._desk = desk
        self._ingest = ingest
        self._logins = logins
        self._body_bytes_max = body_bytes_max
        self._body_s = body_s
        one = "/v1/buses/{bus}"
        routes = [
            Route("/openapi.json", self._openapi, methods=["GET"]),
            Route("/putEvents", self._put_events, methods=["POST"]),
            Route("/v1/types", self._needs(VIEW, self._types), methods=["GET"]),
            Route("/v1/test", self._needs(VIEW, self._test_any), methods=["POST"]),
            Route("/v1/buses", self._needs(VIEW, self._buses), methods=["GET"]),
            self._value_route(one, self._bus),
            Route(one + "/events", self._events, methods=["POST"]),
            Route(one + "/types", self._needs(VIEW, self._types), methods=["GET"]),
            Route(one + "/rules/{name}/test", self._needs(VIEW, self._test), methods=["POST"]),
            Route(one + "/rules/{name}/dead-letters", self._needs(VIEW, self._letters), methods=["GET"]),
            Route(one + "/rules/{name}/redrive", self._needs(ADMIN, self._redrive), methods=["POST"]),
        ]
        for kind in PARTS:
            list_all = self._needs(VIEW, partial(self._parts, kind))
            routes.append(Route(f"{one}/{kind}s", list_all, methods=["GET"]))
            routes.append(self._value_route(f"{one}/{kind}s/{{name}}", partial(self._part, kind)))
        handlers: dict[Any, Any] = {
            Problem: _tell_problem,
            HTTPException: _tell_http,
            PenstockError: _tell_penstock,
            Exception: _tell_any,
        }
        self.app = Starlette(routes=routes, exception_handlers=handlers)
        self.app.add_middleware(_Checked, callers=callers)

    def _value_route(self, path: str, handler: Handler) -> Route:
        async def either(request: Request) -> Response:
            await self._check(request, VIEW if request.method in ("GET", "HEAD") else ADMIN)
            return await handler(request)

        return Route(path, either, methods=["GET", "PUT", "DELETE"])

    def _needs(self, action: str, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            await self._check(request, action)
            return await handler(request)

        return guarded

    async def _check(self, request: Request, action: str, name: str = CLUSTER) -> None:
        """Raises ``Problem`` unless the caller may do this."""
        self._logins.check(request.scope, await self._logins.identity_of(request.scope), action, name)

    # -- what a request holds

    async def _body(self, request: Request) -> bytes:
        body = bytearray()
        try:
            with trio.fail_after(self._body_s):
                async with aclosing(request.stream()) as stream:
                    async for chunk in stream:
                        body += chunk
                        if len(body) > self._body_bytes_max:
                            raise Problem(413, "too-large", f"a request has at most {self._body_bytes_max} bytes")
        except ClientDisconnect:
            raise Problem(400, "broken-off", "the request ended before its body did") from None
        except trio.TooSlowError:
            raise Problem(408, "too-slow", f"the body did not come within {self._body_s:g} s") from None
        return bytes(body)

    async def _json(self, request: Request) -> Any:
        body = await self._body(request)
        try:
            return read_json(body)
        except NotJson as error:
            raise invalid_config(f"the body is no JSON: {error}") from None

    async def _read_events(self, request: Request) -> list[Event]:
        return from_http(request.headers.items(), await self._body(request))

    # -- events

    async def _events(self, request: Request) -> Response:
        bus = request.path_params["bus"]
        await self._check(request, PRODUCE, bus)
        rows = await self._ingest.take(bus, await self._read_events(request))
        failed = [one for one in rows if "error" in one]
        if failed:
            detail = f"{len(failed)} of {len(rows)} events are not stored: {failed[0]['error']}"
            raise Problem(503, "not-stored", detail, events=rows)
        return answer(202, {"events": rows})

    async def _put_events(self, request: Request) -> Response:
        """The call of RocketMQ EventBridge: the bus is an attribute of the events."""
        identity = await self._logins.identity_of(request.scope)
        if not identity.user:
            self._logins.check(request.scope, identity, PRODUCE, DEFAULT_BUS)
        buses: dict[str, list[Event]] = {}
        for event in await self._read_events(request):
            buses.setdefault(event.attributes.pop("eventbusname", DEFAULT_BUS), []).append(event)
        for bus in buses:
            self._logins.check(request.scope, identity, PRODUCE, bus)
        entries = []
        for bus, events in buses.items():
            for row in await self._ingest.take(bus, events):
                error = row.get("error")
                told = {"ErrorCode": "NotStored", "ErrorMessage": error} if error else {}
                entries.append({"EventId": row["id"]} | told)
        failed = sum(["ErrorCode" in one for one in entries])
        return answer(200, {"FailedEntryCount": failed, "EntryList": entries})

    # -- configuration

    async def _buses(self, _: Request) -> Response:
        return answer(200, self._desk.rows("bus", None))

    async def _bus(self, request: Request) -> Response:
        return await self._one(request, "bus", "")

    async def _parts(self, kind: str, request: Request) -> Response:
        return answer(200, self._desk.rows(kind, request.path_params["bus"]))

    async def _part(self, kind: str, request: Request) -> Response:
        return await self._one(request, kind, request.path_params["name"])

    async def _one(self, request: Request, kind: str, name: str) -> Response:
        bus = request.path_params["bus"]
        if request.method in ("GET", "HEAD"):
            shown = self._desk.show(kind, bus, name)
            return answer(200, shown, {"etag": f'"{shown["revision"]}"'})
        replaces = revision_of(request.headers)
        if request.method == "DELETE":
            await self._desk.delete(kind, bus, name, replaces)
            return Response(status_code=204)
        fact, is_new = await self._desk.put(kind, bus, name, await self._json(request), replaces)
        return answer(201 if is_new else 200, fact.document(), {"etag": f'"{fact.revision}"'})

    # -- what it shows

    async def _types(self, request: Request) -> Response:
        return answer(200, self._desk.types(request.path_params.get("bus")))

    async def _test(self, request: Request) -> Response:
        bus, name = request.path_params["bus"], request.path_params["name"]
        return answer(200, self._desk.test(bus, name, _single(await self._read_events(request))))

    async def _test_any(self, request: Request) -> Response:
        """A rule that is not written yet, and an event."""
        given = await self._json(request)
        if not isinstance(given, dict) or not {"event", "rule"} <= given.keys() <= {"event", "rule", "target"}:
            raise invalid_config("a test is an object with event and rule, and target if it is to be shown")
        event = _single(from_http([("content-type", BATCH)], orjson.dumps([given["event"]])))
        return answer(200, verdict(given["rule"], given.get("target"), event, {"bus": "", "rule": ""}))

    async def _letters(self, request: Request) -> Response:
        count = request.query_params.get("count", "100")
        if not (count.isascii() and count.isdigit() and 1 <= len(count) <= 4 and int(count) > 0):
            raise Problem(400, "invalid-count", f"count is a number from 1 to 9999, not {count!r:.40}")
        return answer(200, await self._desk.letters(*_rule_of(request), int(count)))

    async def _redrive(self, request: Request) -> Response:
        again = request.query_params.get("again", "false")
        if again not in ("true", "false"):
            raise Problem(400, "invalid-flag", f"again is true or false, not {again!r:.40}")
        return answer(200, await self._desk.redrive(*_rule_of(request), again=again == "true"))

    async def _openapi(self, _: Request) -> Response:
        return answer(200, document())


def _rule_of(request: Request) -> tuple[str, str]:
    return request.path_params["bus"], request.path_params["name"]


def _single(events: list[Event]) -> Event:
    if len(events) != 1:
        raise Problem(400, "not-one-event", f"a test takes one event, not {len(events)}")
    return events[0]


def revision_of(headers: Mapping[str, str]) -> int:
    """The revision that a request means to replace. Raises ``Problem``."""
    if headers.get("if-none-match", "").strip() == "*":
        return NONE
    given = headers.get("if-match", "*").strip()
    if given == "*":
        return ANY
    number = given.removeprefix("W/").strip('"')
    if number.isascii() and number.isdigit() and len(number) < 16:
        return int(number)
    raise Problem(400, "invalid-revision", f"If-Match names a revision as ETag has it, not {given!r:.60}")


async def _tell_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_answer(error)


async def _tell_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = problem_answer(Problem(error.status_code, "http", error.detail))
    told.headers.update(error.headers or {})
    return told


async def _tell_penstock(_: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    return problem_answer(Problem(503, "cluster", f"{type(error).__name__}: {error.message}", hint=error.hint))


async def _tell_any(_: Request, error: Exception) -> Response:
    _log.error("a request failed by an unforeseen error", exc_info=error)
    return problem_answer(Problem(500, "internal", type(error).__name__))


class _Checked:
    """Asks ``Callers`` before anything of a request is read."""

    def __init__(self, app: Any, callers: Callers) -> None:
        self._app = app
        self._callers = callers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            try:
                self._callers.check(scope)
            except Problem as problem:
                await problem_answer(problem)(scope, receive, send)
                return
        await self._app(scope, receive, send)
