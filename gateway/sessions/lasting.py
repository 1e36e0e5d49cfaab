"""What only a session that outlives its connection has, while its client is connected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.messages.feed import Feed
from gateway.sessions.session_state import Owed, Place, Sent


class Lasting:
    """Of one session.

    Attributes:
        incarnation: tells it from earlier sessions of the same client.
        doubtful_ms: what was stored until this wall-clock time may have been sent already, by a gateway that was lost.
        home: name of the broker where it is at home.
        has_new_terms: subscriptions have changed since the last save.
        unsaved: packets that leave when the next save is durable, and ``when_saved``: who wants to know it.
        unsaved_bytes: of these packets, and of those whose save is under way.
        is_full: these are too many for anything to be sent behind them.
        is_saving: packets wait for a save that is under way; what comes later waits behind them.
        places: where it was in queues that it has not come back to yet.
        owed: what subscriptions are owed whose queues it has not come back to yet.
        held: filters that are open in its own name at all brokers.
        closed: feeds of subscriptions that have ended since the last save.
        absent: by packet id, messages on their way whose broker is not known here; they go again on a later connection.
    """

    __slots__ = (
        "absent",
        "closed",
        "doubtful_ms",
        "has_new_terms",
        "held",
        "home",
        "incarnation",
        "is_full",
        "is_saving",
        "owed",
        "places",
        "unsaved",
        "unsaved_bytes",
        "when_saved",
    )

    def __init__(self, incarnation: int, home: str = "") -> None:
        self.incarnation = incarnation
        self.home = home
        self.doubtful_ms = 0
        self.has_new_terms = False
        self.is_saving = False
        self.unsaved: list[bytes] = []
        self.unsaved_bytes = 0
        self.is_full = False
        self.when_saved: list[Callable[[], None]] = []
        self.places: dict[tuple[str, str], Place] = {}
        self.owed: dict[tuple[str, str], Owed] = {}
        self.held: dict[str, None] = {}
        self.closed: list[Feed[Any]] = []
        self.absent: dict[int, Sent] = {}

    def forget(self, filter: str) -> None:
        """A subscription has ended: it has no place anywhere, and nothing is owed to it any more."""
        self.places = {place: one for place, one in self.places.items() if place[0] != filter}
        self.owed = {place: one for place, one in self.owed.items() if place[0] != filter}

    def holder(self, broker: str) -> str:
        """The name under which its filters are open at a broker (docs/formats/facts.md)."""
        at_home = broker == self.home or not self.home
        return f"~session/{self.incarnation}" if at_home else f"~session/{self.incarnation}@{self.home}"
