"""Penstock: one message system for devices, services and analysts. This is what programs import.

The names load on first use, so that ``import penstock.protocol.wire`` (Spark executors, pure cores) brings in no event
loop.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.client.consumer import Consumer as Consumer
    from penstock.client.positions import QueueAt as QueueAt
    from penstock.client.producer import Producer as Producer
    from penstock.client.reader import Reader as Reader
    from penstock.client.sending import Receipt as Receipt
    from penstock.errors import PenstockError as PenstockError
    from penstock.errors import SendManyError as SendManyError
    from penstock.protocol.message import Message as Message

_HOMES: Final = {
    "Consumer": "penstock.client.consumer",
    "Message": "penstock.protocol.message",
    "PenstockError": "penstock.errors",
    "Producer": "penstock.client.producer",
    "QueueAt": "penstock.client.positions",
    "Reader": "penstock.client.reader",
    "Receipt": "penstock.client.sending",
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
