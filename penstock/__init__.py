"""Penstock: one message system for devices, services and analysts. This is what programs import.

The names load on first use, so that ``import penstock.protocol.wire`` (Spark executors, pure cores) brings in no event
loop.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.client.admin import Admin as Admin
    from penstock.client.attempts import Retry as Retry
    from penstock.client.consumer import Consumer as Consumer
    from penstock.client.devices import device_message as device_message
    from penstock.client.finding import find as find
    from penstock.client.halves import HalfMessage as HalfMessage
    from penstock.client.outcomes import Outcome as Outcome
    from penstock.client.outcomes import Status as Status
    from penstock.client.pop_consumer import PopConsumer as PopConsumer
    from penstock.client.producer import Producer as Producer
    from penstock.client.reader import Reader as Reader
    from penstock.client.sending import Receipt as Receipt
    from penstock.client.ways import DelayedReceipt as DelayedReceipt
    from penstock.errors import PenstockError as PenstockError
    from penstock.errors import SendManyError as SendManyError
    from penstock.protocol.message import Message as Message
    from penstock.protocol.received import MessageQueue as MessageQueue
    from penstock.protocol.received import ReceivedMessage as ReceivedMessage

_HOMES: Final = {
    "Admin": "penstock.client.admin",
    "Consumer": "penstock.client.consumer",
    "DelayedReceipt": "penstock.client.ways",
    "HalfMessage": "penstock.client.halves",
    "Message": "penstock.protocol.message",
    "MessageQueue": "penstock.protocol.received",
    "Outcome": "penstock.client.outcomes",
    "PenstockError": "penstock.errors",
    "PopConsumer": "penstock.client.pop_consumer",
    "Producer": "penstock.client.producer",
    "Reader": "penstock.client.reader",
    "ReceivedMessage": "penstock.protocol.received",
    "Receipt": "penstock.client.sending",
    "Retry": "penstock.client.attempts",
    "SendManyError": "penstock.errors",
    "Status": "penstock.client.outcomes",
    "device_message": "penstock.client.devices",
    "find": "penstock.client.finding",
}

__all__ = [
    "Admin",
    "Consumer",
    "DelayedReceipt",
    "HalfMessage",
    "Message",
    "MessageQueue",
    "Outcome",
    "PenstockError",
    "PopConsumer",
    "Producer",
    "Reader",
    "Receipt",
    "ReceivedMessage",
    "Retry",
    "SendManyError",
    "Status",
    "device_message",
    "find",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
