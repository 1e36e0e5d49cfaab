"""What ended subscriptions of a session had delivered, for those that lag, so that a message is sent once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.sessions.subscriptions import Redo, is_left
from topicmap.names import matches, overlaps

ENDED_MAX: Final = 64
"""Number of ended subscriptions of which a session knows what they had delivered. One counts only for those that are
younger and began before it ended; for each of these at most one of its filter does. So where eleven stand at a time
there are never more that count, however often they come and go. Where there are more, some messages come twice."""


class Ended(NamedTuple):
    """End of a subscription of a session at a broker: it has delivered what it matches from ``start``, the first that
    was its own to deliver, to ``seen``, but for what it was still to go over again (``left``) and what was for the
    ``older`` ones, of which that many were open at that broker. A cursor that comes to such a message later passes over
    it."""

    broker: str
    filter: str
    start: int
    seen: int
    left: tuple[Redo, ...]
    older: int

    def has_delivered(self, position: int, name: str) -> bool:
        return (
            self.start <= position <= self.seen
            and matches(self.filter, name)
            and not is_left(self.left, position, name)
        )


class Standing(NamedTuple):
    """A subscription of a session at a broker, with the number of ``older`` ones there, that may reach messages stored
    after ``reached``."""

    broker: str
    filter: str
    older: int
    reached: int

    def is_to_come_to(self, ended: Ended) -> bool:
        """Whether it may come to something that one that has ended has delivered, and that it would deliver else."""
        return (
            self.reached < ended.seen
            and ended.older <= self.older
            and self.broker == ended.broker
            and overlaps(self.filter, ended.filter)
        )


def still_needed(ended: Sequence[Ended], standing: Sequence[Standing]) -> list[Ended]:
    """The ended ones that a subscription may still reach; the latest if they are too many."""
    found = []
    for one in ended:
        for other in standing:
            if other.is_to_come_to(one):
                found.append(one)
                break
    return found[-ENDED_MAX:]


def without(ended: Sequence[Ended], broker: str, older: int) -> list[Ended]:
    """The same when a subscription leaves a broker, by the number of older ones there."""
    return [one._replace(older=one.older - 1) if one.broker == broker and one.older > older else one for one in ended]


def have_delivered(ended: Sequence[Ended], broker: str, older: int, position: int, name: str) -> bool:
    """Whether one with no more than a number of older ones has delivered a message."""
    return any(one.older <= older and one.broker == broker and one.has_delivered(position, name) for one in ended)
