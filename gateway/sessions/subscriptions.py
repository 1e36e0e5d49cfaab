"""What a client has subscribed to: a filter with its options, as it is kept with the session (docs/formats/mqtt.md)."""

from __future__ import annotations

from typing import NamedTuple


class Subscription:
    """A filter with its options. ``identifier`` is 0 where there is none; ``qos`` is the granted one; ``shows_place``:
    each message says where it is stored; ``name``: of the position that is kept for it, if one is; ``counts``: what it
    is sent counts for that, or, until it stands, for the one before it."""

    __slots__ = (
        "as_published",
        "counts",
        "filter",
        "identifier",
        "name",
        "no_local",
        "qos",
        "retain_handling",
        "shows_place",
    )

    def __init__(
        self,
        filter: str,
        qos: int,
        *,
        no_local: bool = False,
        as_published: bool = False,
        retain_handling: int = 0,
        identifier: int = 0,
        shows_place: bool = False,
        name: str = "",
    ) -> None:
        self.filter = filter
        self.qos = qos
        self.no_local = no_local
        self.as_published = as_published
        self.retain_handling = retain_handling
        self.identifier = identifier
        self.shows_place = shows_place
        self.name = name
        self.counts = bool(name)


class Redo(NamedTuple):
    """A stretch of a queue that is gone over again: below ``until``, only what ``filter`` matches and what was
    stored after ``after``, the last message that the ended subscription came to."""

    until: int
    after: int
    filter: str
