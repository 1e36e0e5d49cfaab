"""Which function carries out which request: ``@handles`` on a method, and the table that a broker makes of them.

Every handler has one signature: the request, ``now`` (monotonic seconds, for deadlines) and ``now_ms`` (wall-clock
milliseconds, for stored times) in, an outcome out. It raises ``PenstockError`` for what it refuses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from broker.kernel.outcomes import Outcome
from penstock.protocol.requests.request import Request

Handler = Callable[[Any, float, int], Outcome]
F = TypeVar("F", bound=Callable[..., Outcome])

_MARKED: Final[dict[str, type[Request]]] = {}
"""Request by the qualified name of its handler: methods of compiled classes take no attributes."""


def handles(kind: type[Request]) -> Callable[[F], F]:
    """Marks a method as the handler of a kind of request. Raises ``ValueError`` where the method handles another."""

    def mark(function: F) -> F:
        name = function.__qualname__
        if _MARKED.setdefault(name, kind) is not kind:
            raise ValueError(f"{name} handles {_MARKED[name].__name__}, so not {kind.__name__} too")
        return function

    return mark


def handlers_of(themes: Iterable[object]) -> dict[type[Request], Handler]:
    """The table of all handlers of these objects. Raises ``ValueError`` where two handle one kind of request."""
    table: dict[type[Request], Handler] = {}
    for theme in themes:
        cls: Any = type(theme)
        for kind, name in _marked(cls):
            if kind in table:
                raise ValueError(f"two handlers of {kind.__name__}: {table[kind]} and {cls.__qualname__}.{name}")
            table[kind] = getattr(theme, name)
    return table


@functools.cache
def _marked(cls: Any) -> tuple[tuple[type[Request], str], ...]:
    """What the methods of a class handle, and their names."""
    names = [(_MARKED.get(f"{cls.__qualname__}.{name}"), name) for name in sorted(vars(cls))]
    return tuple([(kind, name) for kind, name in names if kind is not None])
