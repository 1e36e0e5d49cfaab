"""What a client has subscribed to: a filter with its options, as it is kept with the session (docs/formats/mqtt.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from topicmap.names import matches

REDOS_MAX: Final = 64
"""Number of repeated stretches that are kept; each subscription may have left messages to each other one. If there are
more, everything is repeated, and some messages come twice."""


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
    """A repeated stretch of a queue: below ``until``, only messages that ``filter`` matches, all of ``also``, and
    messages stored after ``after``, the last one that the ended subscription reached. Its own stretches it had not come
    through are gone over for it: that is what ``also`` is for."""

    until: int
    after: int
    filter: str
    also: tuple[str, ...] = ()


def is_left(redos: Sequence[Redo] | None, position: int, name: str) -> bool:
    """Whether a message is one of those that are to be gone over again."""
    for redo in redos or ():
        if redo.after < position and matches(redo.filter, name) and all([matches(one, name) for one in redo.also]):
            return True
    return False


def without_dominated(redos: Sequence[Redo]) -> list[Redo]:
    """The stretches that are not within another one, which covers more messages and is as long or longer."""
    kept: list[Redo] = []
    for redo in sorted(redos, key=lambda one: (one.after, -one.until, len(one.also))):
        filters = {redo.filter, *redo.also}
        if not any([one.until >= redo.until and {one.filter, *one.also} <= filters for one in kept]):
            kept.append(redo)
    return kept


def bounded(filter: str, redos: list[Redo]) -> list[Redo]:
    """The stretches of a queue that are kept. ``filter``: the queue's."""
    if len(redos) > REDOS_MAX:
        redos = without_dominated(redos)
    if len(redos) <= REDOS_MAX:
        return redos
    return [Redo(max([redo.until for redo in redos]), min([redo.after for redo in redos]), filter)]
