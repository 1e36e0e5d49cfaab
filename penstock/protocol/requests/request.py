"""What a request and a reply are, and the reply that says nothing but *done*."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.protocol.requests.base import Reply as Reply
from penstock.protocol.requests.base import Request as Request
from penstock.values import value as value

Bytes = bytes | memoryview


@value
class Done(Reply):
    """The request was carried out and has nothing to tell."""


Result = Reply | PenstockError
"""The result of a request: its reply, or the error that stands for it."""
