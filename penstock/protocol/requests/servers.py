"""Requests that every server answers: its identity and its figures. Codes 1 to 9 and 90 to 99."""

from __future__ import annotations

from typing import ClassVar

from penstock.protocol.requests.request import Done, Reply, Request, value


@value
class ServerInfo(Reply):
    """``now_ms``: what time it is there, in milliseconds since 1970; 0: the server does not say."""

    role: str
    name: str
    version: str
    now_ms: int = 0


@value
class Ping(Request):
    """Asks for a server's identity."""

    code: ClassVar[int] = 1
    reply: ClassVar[type[Reply]] = ServerInfo


@value
class LoginStep(Reply):
    """A server's answer in a login. ``data``: the mechanism's challenge, or the server's own proof. ``is_over``: the
    login is done, and ``user`` is the client's name; empty if the server asks for no such login."""

    data: bytes
    is_over: bool = False
    user: str = ""


@value
class Login(Request):
    """A step of a client's login, at the beginning of a connection. The mechanism (``penstock/protocol/logins.py``)
    says how many there are: the first names it, the following ones may leave it empty. ``NotAuthorized`` ends the
    exchange, and soon the connection."""

    code: ClassVar[int] = 2
    reply: ClassVar[type[Reply]] = LoginStep
    mechanism: str
    data: bytes


@value
class BrokerFigures(Reply):
    """Counters since start and gauges, by metric name (docs/guide/metrics.md lists them)."""

    names: tuple[str, ...]
    values: tuple[float, ...]


@value
class ReadFigures(Request):
    """A question for a broker's counters and gauges."""

    code: ClassVar[int] = 90
    reply: ClassVar[type[Reply]] = BrokerFigures
    is_repeatable: ClassVar[bool] = True


@value
class ChangeSetting(Request):
    """Changes a setting of a server until it starts again, one of those that change
    (``penstock/service/live_settings.py``); an empty value is the one that it started with. ``InvalidRequest`` for any
    other, and for a value that it does not take."""

    code: ClassVar[int] = 91
    reply: ClassVar[type[Reply]] = Done
    name: str
    value: str
