"""What a request and a reply are, and the reply that says nothing but *done*."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.errors import PenstockError

Bytes = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Reply:
    """Base of all replies."""


@dataclass(frozen=True, slots=True)
class Request:
    """Base of all requests. ``code`` stands for the type on the wire, ``reply`` is the type of the answer."""

    code: ClassVar[int] = 0
    reply: ClassVar[type[Reply]]


@dataclass(frozen=True, slots=True)
class Done(Reply):
    """The request was carried out and has nothing to tell."""


Result = Reply | PenstockError
"""What becomes of a request: its reply, or the error that stands for it."""
