"""The console as an ASGI application: the paths of its pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from console import markup
from console.guard import Guard
from console.pages import (
    access,
    brokers,
    clients,
    events,
    groups,
    letters,
    login,
    messages,
    overview,
    retained,
    sleeping,
    topics,
)
from console.visits import Answer, Console, Endpoint, change, view

STATIC: Final = Path(__file__).parent / "static"

PAGES: Final[Mapping[str, Answer]] = MappingProxyType(
    {
        "/": overview.overview,
        "/overview/live": overview.live,
        "/overview/rates": overview.rates,
        "/topics": topics.topics,
        "/topics/live": topics.live,
        "/topic": topics.topic,
        "/topic/live": topics.topic_live,
        "/messages": messages.messages,
        "/message": messages.message,
        "/publish": messages.publish,
        "/groups": groups.groups,
        "/groups/live": groups.live,
        "/group": groups.group,
        "/group/live": groups.group_live,
        "/group/lag": groups.lag,
        "/group/reset": groups.preview,
        "/letters": letters.letters,
        "/letters/of": letters.letters_of,
        "/sleeping": sleeping.sleeping,
        "/events": events.events,
        "/events/bus": events.bus,
        "/clients": clients.clients,
        "/clients/live": clients.live,
        "/client": clients.client,
        "/client/live": clients.client_live,
        "/filters": clients.filters,
        "/access": access.access,
        "/audit": access.audit,
        "/retained": retained.retained,
        "/brokers": brokers.brokers,
        "/brokers/live": brokers.live,
        "/broker": brokers.broker,
    }
)
"""Pages and live parts, for users who may view the cluster."""

ACTIONS: Final[Mapping[str, Answer]] = MappingProxyType(
    {
        "/topics/create": topics.create,
        "/topics/change": topics.change,
        "/topics/purge": topics.purge,
        "/topics/delete": topics.delete,
        "/publish": messages.send,
        "/group/reset": groups.reset,
        "/letters/redrive": letters.redrive,
        "/sleeping/end": sleeping.end,
        "/sleeping/cancel": sleeping.cancel,
        "/client/disconnect": clients.disconnect,
        "/client/end": clients.end,
        "/broker/allow": brokers.allow,
    }
)
"""Targets of forms, for users who may administer the cluster."""


class Assets:
    """The console's own files, which browsers may keep for an hour."""

    def __init__(self) -> None:
        self._files = StaticFiles(directory=STATIC)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._files.get_response(self._files.get_path(scope), scope)
        response.headers["cache-control"] = "max-age=3600"
        await response(scope, receive, send)


def application(console: Console, hosts: Collection[str] = ()) -> ASGIApp:
    """The application; ``hosts``: those of ``Guard``."""
    routes: list[BaseRoute] = [Route(path, view(console, answer), methods=["GET"]) for path, answer in PAGES.items()]
    routes += [Route(path, change(console, answer), methods=["POST"]) for path, answer in ACTIONS.items()]
    logins: list[tuple[str, str, Callable[[Console], Endpoint]]] = [
        ("/login", "GET", login.login_page),
        ("/login", "POST", login.log_in),
        ("/logout", "POST", login.log_out),
    ]
    routes += [Route(path, endpoint_of(console), methods=[method]) for path, method, endpoint_of in logins]
    routes.append(Mount("/static", Assets()))
    return Guard(Starlette(routes=routes, exception_handlers={404: _missing, 405: _missing}), hosts)


async def _missing(request: Request, error: Exception) -> Response:
    return HTMLResponse(str(markup.bare_page("There is no such page", markup.link("Overview", "/"))), 404)
