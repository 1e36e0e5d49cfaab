"""What a request and a reply are, and the reply that says nothing but *done*."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

from penstock.errors import PenstockError
from penstock.protocol.requests.base import Reply as Reply
from penstock.protocol.requests.base import Request as Request

Bytes = bytes | memoryview
_Kind = TypeVar("_Kind")


@dataclass_transform(frozen_default=True)
def value(cls: type[_Kind]) -> type[_Kind]:
    """Makes a class a dataclass that nobody changes. The type checker sees to that: at run time it would make each one
    several times as dear, and who sends and pulls message by message makes several for each."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


@value
class Done(Reply):
    """The request was carried out and has nothing to tell."""


Result = Reply | PenstockError
"""What becomes of a request: its reply, or the error that stands for it."""
