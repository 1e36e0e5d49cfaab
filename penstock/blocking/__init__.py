"""The client on plain blocking sockets: for scripts, notebooks and Spark executors. It imports no event loop.

The names load on first use: a worker of Spark that reads a queue needs few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.blocking.admin import Admin as Admin
    from penstock.blocking.consumer import Consumer as Consumer
    from penstock.blocking.finding import find as find
    from penstock.blocking.link import BlockingLink as BlockingLink
    from penstock.blocking.pop_consumer import PopConsumer as PopConsumer
    from penstock.blocking.producer import Producer as Producer
    from penstock.blocking.reader import Reader as Reader
    from penstock.blocking.routes import Routes as Routes
    from penstock.blocking.routes import bootstrap as bootstrap

_HOMES: Final = {
    "Admin": "penstock.blocking.admin",
    "BlockingLink": "penstock.blocking.link",
    "Consumer": "penstock.blocking.consumer",
    "PopConsumer": "penstock.blocking.pop_consumer",
    "Producer": "penstock.blocking.producer",
    "Reader": "penstock.blocking.reader",
    "Routes": "penstock.blocking.routes",
    "bootstrap": "penstock.blocking.routes",
    "find": "penstock.blocking.finding",
}

__all__ = [
    "Admin",
    "BlockingLink",
    "Consumer",
    "PopConsumer",
    "Producer",
    "Reader",
    "Routes",
    "bootstrap",
    "find",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
