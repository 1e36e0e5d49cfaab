"""A compact set: nearly always one thing, in the order of arrival.

Most filters have one subscriber, and there may be 100,000 of them: a dict for each would take five times the memory.
From the second thing on this is a dict.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class CompactSet(Generic[T]):
    """``add`` and ``discard`` compare by identity or equality, as those of a set."""

    __slots__ = ("_many", "_one")

    def __init__(self) -> None:
        self._one: T | None = None
        self._many: dict[T, None] | None = None

    def add(self, thing: T) -> None:
        """Adds it behind the others, if it is not there."""
        if self._many is not None:
            self._many[thing] = None
        elif self._one is None:
            self._one = thing
        elif self._one != thing:
            self._many = {self._one: None, thing: None}
            self._one = None

    def discard(self, thing: T) -> bool:
        """Takes it out; whether it was there."""
        many = self._many
        if many is None:
            if self._one is None or self._one != thing:
                return False
            self._one = None
            return True
        was_there = many.pop(thing, 0) is None
        if not many:
            self._many = None
        return was_there

    def sole(self) -> T | None:
        """The one thing, if there are no others."""
        if self._many is None:
            return self._one
        return next(iter(self._many)) if len(self._many) == 1 else None

    def all(self) -> list[T]:
        """The things, as a list of its own."""
        if self._many is not None:
            return list(self._many)
        return [] if self._one is None else [self._one]

    def __contains__(self, thing: object) -> bool:
        if self._many is not None:
            return thing in self._many
        return self._one is not None and self._one == thing

    def __len__(self) -> int:
        return len(self._many) if self._many is not None else int(self._one is not None)
