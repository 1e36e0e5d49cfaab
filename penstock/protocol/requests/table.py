"""All requests and replies there are: what the wire can carry, by code."""

from __future__ import annotations

from types import ModuleType
from typing import Final, TypeVar

from penstock.protocol.requests import (
    filters,
    groups,
    messages,
    pops,
    replicas,
    request,
    retries,
    routes,
    servers,
    sessions,
    shares,
    timers,
    topics,
    transactions,
)
from penstock.protocol.requests.request import Reply, Request

_THEMES: Final[tuple[ModuleType, ...]] = (
    request,
    servers,
    routes,
    topics,
    messages,
    filters,
    groups,
    sessions,
    shares,
    timers,
    retries,
    pops,
    transactions,
    replicas,
)
_Kind = TypeVar("_Kind", Reply, Request)


def _defined(base: type[_Kind]) -> tuple[type[_Kind], ...]:
    """The classes of this kind that the themes define, each where it lives."""
    return tuple(
        value
        for theme in _THEMES
        for value in vars(theme).values()
        if isinstance(value, type)
        and issubclass(value, base)
        and value is not base
        and value.__module__ == theme.__name__
    )


REPLIES: Final[tuple[type[Reply], ...]] = _defined(Reply)
REQUESTS: Final[dict[int, type[Request]]] = {cls.code: cls for cls in _defined(Request)}
assert len(REQUESTS) == len(_defined(Request)), "two requests share a code"
