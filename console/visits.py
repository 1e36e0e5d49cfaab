"""Requests of browsers, and endpoints that answer them.

A page is a function from a ``Visit`` to a response. ``view`` makes an endpoint of it: it finds the login, checks role
and token of a form, and makes a page of an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from hmac import compare_digest
from typing import Final
from urllib.parse import parse_qsl

import trio
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from console import markup
from console.cluster import Cluster
from console.logins import Attempts, Login, Logins, Users
from console.watch import Watch
from penstock.access.acl import ADMIN, CONSUME, VIEW
from penstock.access.needs import PEER, of_topic
from penstock.access.policy import CERTIFICATE, CLUSTER, UNPROVEN, Identity
from penstock.errors import (
    GroupNotFound,
    HalfNotFound,
    InvalidMessage,
    InvalidRequest,
    InvalidTopic,
    NoRoute,
    NotAuthorized,
    OffsetOutOfRange,
    PenstockError,
    QueueNotFound,
    SessionNotFound,
    TimerNotFound,
    TopicNotFound,
)
from penstock.service.audit import Audit
from penstock.service.http_server import shown_certificate

COOKIE: Final = "penstock-console"
FORM_BYTES_MAX: Final = 2 << 20
FORM_S: Final = 60.0
"""Seconds that a form may take to come."""
PAGE_ROWS: Final = 50
NUMBER_MAX: Final = (1 << 63) - 1
_NOT_FOUND: Final = (
    TopicNotFound,
    GroupNotFound,
    QueueNotFound,
    SessionNotFound,
    HalfNotFound,
    TimerNotFound,
    OffsetOutOfRange,
    NoRoute,
)
_TOO_LARGE: Final = "the form is too large"
_ABOUT: Final = ("name", "group", "topic", "id", "timer", "half")
"""The fields of forms that name the changed object."""
_WRONG: Final = (InvalidRequest, InvalidTopic, InvalidMessage)


@dataclass(frozen=True, slots=True)
class Console:
    """The parts of the console that all requests share. ``users``: None if everyone is an administrator;
    ``is_secure``: the console speaks HTTPS; ``audit``: of what users do."""

    cluster: Cluster
    watch: Watch
    logins: Logins
    attempts: Attempts
    users: Users | None
    is_secure: bool
    audit: Audit

    def refusal(self, login: Login, action: str, name: str = CLUSTER) -> NotAuthorized | None:
        """The reason why a browser may not do one of ``acl.NATIVE``; None if it may."""
        return None if self.users is None else self.users.refusal(login.identity, action, name)

    def note(self, who: Identity, request: Request, act: str, name: str, *, allowed: bool, why: str = "") -> None:
        """Writes an act of a user to the audit log. Without users it writes nothing."""
        if self.users is not None:
            self.audit.note(who, address_of(request), act, name, allowed=allowed, why=why)


@dataclass(frozen=True, slots=True)
class Visit:
    """A permitted request. ``form``: the fields of a form; empty for a page."""

    request: Request
    console: Console
    login: Login
    form: Mapping[str, str]

    @property
    def cluster(self) -> Cluster:
        return self.console.cluster

    @property
    def watch(self) -> Watch:
        return self.console.watch

    @property
    def may_act(self) -> bool:
        """Whether forms that change something are shown."""
        return self.console.refusal(self.login, ADMIN) is None

    def check(self, action: str, name: str = CLUSTER) -> None:
        """Raises ``NotAuthorized`` where the user may not do this."""
        refusal = self.console.refusal(self.login, action, name)
        if refusal is not None:
            self.console.note(self.login.identity, self.request, self.request.url.path, name, allowed=False, why=action)
            raise refusal

    def check_reading(self, topic: str) -> None:
        """Raises ``NotAuthorized`` where the user may not read a topic's messages. It takes the same rights as at the
        native ports; topics that only services read there take ``admin`` of the cluster."""
        need = of_topic((CONSUME,), topic)
        [action] = need.actions
        self.check(ADMIN if action == PEER else action, need.name)

    def ask(self, name: str, default: str = "") -> str:
        """A field of the form, or else of the address."""
        return self.form.get(name, self.request.query_params.get(name, default))

    def ask_number(self, name: str, default: int) -> int:
        """The same as a whole number. Raises ``InvalidRequest``."""
        return number_of(name, self.ask(name), default)

    def page(self, title: str, *parts: Markup, path: str, status: int = 200) -> HTMLResponse:
        """A page; ``path``: of its entry in the navigation."""
        said, self.login.said[:] = list(self.login.said), []
        body = markup.joined(parts)
        text = markup.page(title, path, body, user=self.login.user, csrf=self.login.csrf, said=said)
        return HTMLResponse(str(text), status)

    def part(self, *parts: Markup) -> HTMLResponse:
        """The new content of a live part of a page."""
        return HTMLResponse(str(markup.joined(parts)))

    def done(self, said: str, path: str, **query: object) -> RedirectResponse:
        """Redirects to a page that shows the result of an action once."""
        self.login.said.append(said)
        return RedirectResponse(markup.address(path, **query), 303)

    def action(self, path: str, submit: str, hidden: Mapping[str, str], *parts: Markup, kind: str = "") -> Markup:
        """A form that changes something; empty for viewers."""
        return markup.action(path, self.login.csrf, submit, hidden, parts, kind=kind) if self.may_act else Markup("")


Answer = Callable[[Visit], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


def address_of(request: Request) -> str:
    """The address of a request."""
    return request.client.host if request.client else ""


def number_of(name: str, text: str, default: int) -> int:
    """A whole number of 64 bits in text. Raises ``InvalidRequest``."""
    if not text.strip():
        return default
    try:
        number = int(text)
    except ValueError:
        raise InvalidRequest(f"{name} is a whole number, not {text[:40]!r}") from None
    if not -NUMBER_MAX <= number <= NUMBER_MAX:
        raise InvalidRequest(f"{name} is out of range")
    return number


def time_of(name: str, text: str) -> datetime:
    """A time in text, as browsers send it; without a zone it is UTC. Raises ``InvalidRequest``."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidRequest(f"{name} is a time as 2026-11-28T10:00, not {text[:40]!r}") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def view(console: Console, answer: Answer) -> Endpoint:
    """The endpoint of a page, for all who are logged in."""

    async def endpoint(request: Request) -> Response:
        login, token = _login_of(console, request)
        if login is None:
            return _to_login(request)
        response = await _answered(Visit(request, console, login, {}), answer, VIEW)
        if token:
            set_cookie(response, token, console)
        return response

    return endpoint


def change(console: Console, answer: Answer) -> Endpoint:
    """The endpoint of a form that changes something, for administrators."""

    async def endpoint(request: Request) -> Response:
        login, _ = _login_of(console, request)
        if login is None:
            return _to_login(request)
        form = await read_form(request)
        visit = Visit(request, console, login, form)
        if not compare_digest(form.get("csrf", "").encode(), login.csrf.encode()):
            return _refused(visit, "This form is too old", "Go back, load the page again and repeat what you did.")
        return await _answered(visit, answer, ADMIN)

    return endpoint


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises ``HTTPException`` where it is too large or too slow."""
    said = request.headers.get("content-length", "")
    body = bytearray()
    if said.isdecimal() and int(said) > FORM_BYTES_MAX:
        raise HTTPException(413, _TOO_LARGE)
    try:
        with trio.fail_after(FORM_S):
            async with aclosing(request.stream()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > FORM_BYTES_MAX:
                        raise HTTPException(413, _TOO_LARGE)
    except trio.TooSlowError:
        raise HTTPException(408, f"the form did not come within {FORM_S:g} s") from None
    pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=200)
    return dict(pairs)


def set_cookie(response: Response, token: str, console: Console) -> None:
    """Stores the token of a login in the browser."""
    response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=console.is_secure, path="/")


def _login_of(console: Console, request: Request) -> tuple[Login | None, str]:
    """The login of a request, and the token of a new one, which the browser has yet to store; else empty. Who shows a
    certificate is logged in by it."""
    token = request.cookies.get(COOKIE, "")
    login, users = console.logins.find(token), console.users
    who = UNPROVEN if users is None else users.of_certificate(*shown_certificate())
    if login is not None and (users is None or _counts(users, login.identity, who)):
        return login, ""
    if users is not None and not who.user:
        return None, ""
    console.note(who, request, "Login", "", allowed=True)
    token, login = console.logins.open(who)
    return login, token


def _counts(users: Users, identity: Identity, shown: Identity) -> bool:
    """Whether a login still counts. ``shown``: whom the connection's certificate names; without it a login by that
    certificate ends, as the certificate may have been revoked."""
    return users.still(identity) and (identity.how != CERTIFICATE or identity.user == shown.user)


def _to_login(request: Request) -> Response:
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"hx-redirect": "/login"})
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(markup.address("/login", to=wanted if request.method == "GET" else ""), 303)


async def _answered(visit: Visit, answer: Answer, action: str) -> Response:
    """The answer to a request that takes this right for the cluster."""
    visit.watch.seen()
    try:
        visit.check(action)
        if action == ADMIN:
            about = next((visit.form[field] for field in _ABOUT if visit.form.get(field)), "")
            visit.console.note(visit.login.identity, visit.request, visit.request.url.path, about, allowed=True)
        return await answer(visit)
    except NotAuthorized as error:
        return _refused(visit, "Not allowed", error.message, error.hint)
    except PenstockError as error:
        status = 404 if isinstance(error, _NOT_FOUND) else 400 if isinstance(error, _WRONG) else 503
        return _refused(visit, "It did not work", error.message, error.hint, status=status)


def _refused(visit: Visit, title: str, why: str, hint: str = "", *, status: int = 403) -> Response:
    parts = Markup('<p class="failed" role="alert">{}</p>').format(why)
    parts += Markup('<p class="hint">{}</p>').format(hint) if hint else Markup("")
    if "hx-request" in visit.request.headers:
        return HTMLResponse(str(parts))
    return visit.page(title, parts, path="", status=status)
