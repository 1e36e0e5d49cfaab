"""Batches whose items are stored one after the other, each on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from penstock.errors import PenstockError, StorageFailed, StorageFull
from penstock.protocol.requests.messages import Refused

T = TypeVar("T")
R = TypeVar("R")


def one_by_one(items: Iterable[T], store: Callable[[T], R], nothing: R) -> tuple[list[R], list[Refused]]:
    """Stores each item; returns what ``store`` gave, in order, with ``nothing`` for an item that it refused, and why.

    Raises ``StorageFailed``, and ``StorageFull`` where the first item has no room: then nothing was stored.
    """
    stored: list[R] = []
    refused: list[Refused] = []
    for at, item in enumerate(items):
        try:
            stored.append(store(item))
        except StorageFailed:
            raise
        except PenstockError as error:
            if not at and isinstance(error, StorageFull):
                raise
            refused.append(Refused(at, error.code, error.message))
            stored.append(nothing)
    return stored, refused
