"""Penstock: one message system for devices, services and analysts. This is what programs import.

The names load on first use, so that ``import penstock.wire`` (Spark executors, pure cores) brings in no event loop.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.consumer import Consumer as Consumer
    from penstock.errors import PenstockError as PenstockError
    from penstock.errors import SendManyError as SendManyError
    from penstock.message import Message as Message
    from penstock.positions import QueueAt as QueueAt
    from penstock.producer import Producer as Producer
    from penstock.reader import Reader as Reader
    from penstock.sending import Receipt as Receipt

_HOMES: Final = {
    "Consumer": "penstock.consumer",
    "Message": "penstock.message",
    "PenstockError": "penstock.errors",
    "Producer": "penstock.producer",
    "QueueAt": "penstock.positions",
    "Reader": "penstock.reader",
    "Receipt": "penstock.sending",
    "SendManyError": "penstock.errors",
}

__all__ = ["Consumer", "Message", "PenstockError", "Producer", "QueueAt", "Reader", "Receipt", "SendManyError"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
