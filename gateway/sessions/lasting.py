"""The parts that a session may have: the connection of its client (``Client``), and a saved life beyond it
(``Lasting``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.limits.counters import ListenerCounters
from gateway.login.auth import Identity
from gateway.messages.aliases import SentAliases
from gateway.mqtt.reason_codes import Reason
from gateway.sessions.session_state import Flow, Owed, Place, Sent


class Client(Protocol):
    """The connection of a session's client (``gateway.connections.device.Device``).

    Attributes:
        is_v5: whether it speaks MQTT 5.
        accepts_bytes_max: the largest packet that it takes.
        aliases: the topic aliases that it has been sent, if it takes any.
        identity: who it is, once that is known.
        tally: what goes through its listener.
    """

    is_v5: bool
    accepts_bytes_max: int
    aliases: SentAliases | None
    identity: Identity | None
    tally: ListenerCounters

    @property
    def is_full(self) -> bool:
        """Whether it takes no more output for now."""
        ...

    def origin(self) -> tuple[str, str]:
        """Its address and protocol, for operators."""
        ...

    def send(self, data: bytes, count: int = 1) -> None:
        """Sends a number of packets."""
        ...

    def fail(self, reason: Reason, *, ends_session: bool = False) -> None:
        """Closes it for a reason."""
        ...

    def displace(self, reason: Reason, *, ends_session: bool) -> None:
        """Another connection takes over its session."""
        ...


class Lasting:
    """State that only a session has that outlives its connection.

    Attributes:
        generation: tells it from earlier sessions of the same client.
        doubtful_ms: messages stored until this wall-clock time may have been sent already, by a gateway that was lost.
        home: name of the broker where it is at home.
        has_new_terms: subscriptions have changed since the last save.
        unsaved: packets that leave when the next save is durable, and ``when_saved``: the callbacks for then.
        unsaved_bytes: of these packets, and of those whose save is under way.
        is_full: these are too many for anything to be sent behind them.
        is_saving: packets wait for a save that is under way; later ones wait behind them.
        places: where it was in queues that it has not come back to yet.
        owed: what subscriptions are owed whose queues it has not come back to yet.
        is_lost: it is another gateway's by now, with all that is saved of it.
        held: filters that are open in its own name at all brokers.
        closing: filters that it needs no more, open in its name until that is saved: each with all that the same save
            says this of. What it needs again meanwhile is held anew then, but for shares, which just go on.
            closes_next: those of the next save.
        absent: by packet id, messages on their way whose broker is not known here; they go again on a later connection.
    """

    __slots__ = (
        "absent",
        "closes_next",
        "closing",
        "doubtful_ms",
        "generation",
        "has_new_terms",
        "held",
        "home",
        "is_full",
        "is_lost",
        "is_saving",
        "owed",
        "places",
        "unsaved",
        "unsaved_bytes",
        "when_saved",
    )

    def __init__(self, generation: int, home: str = "", held: Iterable[str] = ()) -> None:
        self.generation = generation
        self.home = home
        self.doubtful_ms = 0
        self.has_new_terms = False
        self.is_saving = False
        self.is_lost = False
        self.unsaved: list[bytes] = []
        self.unsaved_bytes = 0
        self.is_full = False
        self.when_saved: list[Callable[[], None]] = []
        self.places: dict[tuple[str, str], Place] = {}
        self.owed: dict[tuple[str, str], Owed] = {}
        self.held: dict[str, None] = dict.fromkeys(held)
        self.closing: dict[str, list[str]] = {}
        self.closes_next: list[str] = []
        self.absent: dict[int, Sent] = {}

    def restore(self, flow: Flow, doubtful_ms: int) -> None:
        """It comes back from its home as it was saved. ``doubtful_ms``: as above."""
        self.doubtful_ms = doubtful_ms
        self.places = dict(flow.places)
        self.owed = dict(flow.owed)
        self.closing = {filter: [] for filter in flow.closing}

    def lose(self) -> None:
        """It is another gateway's, which has its filters open still, or again."""
        self.is_lost = True
        self.held.clear()

    def forget(self, filter: str) -> None:
        """A subscription has ended: it has no place anywhere, and nothing is owed to it any more."""
        self.forget_places(filter)
        self.owed = {place: one for place, one in self.owed.items() if place[0] != filter}

    def forget_places(self, filter: str) -> None:
        """A subscription has no place anywhere."""
        self.places = {place: one for place, one in self.places.items() if place[0] != filter}

    def holder(self, broker: str) -> str:
        """The name under which its filters are open at a broker (docs/formats/facts.md)."""
        at_home = broker == self.home or not self.home
        return f"~session/{self.generation}" if at_home else f"~session/{self.generation}@{self.home}"
