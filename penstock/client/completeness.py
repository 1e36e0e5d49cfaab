"""The brokers that have a topic, and those of them that are away: several name servers' answers as one. Pure.

A name server knows brokers whose leases have ended, and names them beside the live ones. Otherwise a batch, a search or
a listing would take a part for the whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.errors import BrokerAway, NoRoute, TopicNotFound
from penstock.protocol.requests.routes import BrokerRoute, Route

HINT: Final = "start it again; one that stays away is forgotten after the name server's `away_s_max`, a day"
ALLOW: Final = "start it again, or read the other brokers only: allow_incomplete=True, or --allow-incomplete"


class Holders(NamedTuple):
    """The brokers that have something.

    Attributes:
        brokers: those that live, by name.
        away: names of those that are away and have some of it, or may have.
    """

    brokers: tuple[BrokerRoute, ...]
    away: tuple[str, ...]

    def whole(self, what: str, *, hint: str = "") -> tuple[BrokerRoute, ...]:
        """The brokers, where none is away. Raises ``BrokerAway``."""
        check_whole(self.away, what, hint=hint)
        return self.brokers


def check_whole(away: tuple[str, ...], what: str, *, hint: str = "") -> None:
    """Raises ``BrokerAway`` where a broker that has some of ``what`` is away."""
    if away:
        are = f"broker {away[0]} is" if len(away) == 1 else f"brokers {', '.join(away)} are"
        raise BrokerAway(f"{are} away, and may have some of {what}", hint=hint or HINT)


def joined(answers: Iterable[Route | NoRoute]) -> Holders:
    """Joins the answers of several name servers. A broker that one of them knows as live lives. Raises ``BrokerAway``
    where no broker lives and one says that a broker that is away has the topic."""
    live: dict[str, BrokerRoute] = {}
    away: set[str] = set()
    absent: NoRoute | None = None
    for answer in answers:
        if isinstance(answer, NoRoute):
            absent = answer
            continue
        for route in answer.brokers:
            live.setdefault(route.broker, route)
        away.update(answer.away)
    if absent is not None and not live:
        raise BrokerAway(absent.message, hint=HINT)
    return Holders(tuple(live[name] for name in sorted(live)), tuple(sorted(away - live.keys())))


def holders_to_delete(found: Holders | NoRoute, topic: str, allow_incomplete: bool) -> tuple[BrokerRoute, ...]:
    """The brokers at which a topic is deleted. Raises ``TopicNotFound``, and ``BrokerAway`` unless a part will do: a
    broker that comes back has its part of the topic still."""
    if isinstance(found, NoRoute):
        raise TopicNotFound(f"there is no topic {topic}", hint="`penstock topic list` shows all")
    return brokers_to_read(found, topic, allow_incomplete)


def brokers_to_read(found: Holders, topic: str, allow_incomplete: bool) -> tuple[BrokerRoute, ...]:
    """The brokers from which a program reads a topic. Raises ``BrokerAway`` unless a part will do."""
    return found.brokers if allow_incomplete else found.whole(f"topic {topic!r}", hint=ALLOW)
