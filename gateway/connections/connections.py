"""The connections of one gateway, from their accept to their end.

It counts them by listener, by address and half open, logs their ends, and enforces their timeouts. Nothing here waits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Final

from gateway.connections.guests import Guest
from gateway.connections.journal import Journal
from gateway.connections.timeouts import ConnectionTimeouts, Proving, Stay
from gateway.connections.turns import Waiter
from gateway.limits.counters import Counters
from gateway.limits.half_open import HalfOpens
from gateway.limits.rates import Crowd
from gateway.mqtt.reason_codes import Reason, ReasonCode
from penstock.service.histogram import Histogram

_log: Final = logging.getLogger(__name__)


class Connections:
    """All connections of one gateway.

    Attributes:
        turns_away: the reason why no client is let in, 0 if there is none.
        failures: clients that an unforeseen error has ended.
        admitted_s: from the accepting of a connection to its session.
    """

    def __init__(
        self,
        counters: Counters,
        half_opens: HalfOpens,
        crowd: Crowd,
        timeouts: ConnectionTimeouts,
        journal: Journal,
        turns_away: Reason,
    ) -> None:
        self.counters = counters
        self.half_opens = half_opens
        self.crowd = crowd
        self.timeouts = timeouts
        self.journal = journal
        self.turns_away = turns_away
        self.failures = 0
        self.admitted_s = Histogram()
        self._stays: dict[Guest, Stay] = {}

    def __len__(self) -> int:
        return len(self._stays)

    def __iter__(self) -> Iterator[Guest]:
        return iter(self._stays)

    def __contains__(self, device: object) -> bool:
        return device in self._stays

    @property
    def half_open(self) -> int:
        """How many have not been admitted yet, with those that have not said anything in MQTT."""
        return len(self.half_opens)

    def admitted(self, count: int) -> list[Guest]:
        """The first ``count`` of the clients that have a session here, the oldest connections first."""
        return list(islice((device for device in self._stays if device.session is not None), count))

    def turn_away(self, reason: Reason) -> None:
        """Begins to refuse clients."""
        self.turns_away = reason

    def opened(self, device: Guest) -> None:
        """A connection stands; its CONNECT must come soon."""
        self._stays[device] = self.timeouts.opened(device)
        self.counters.entered(device.tally, len(self._stays))
        self.crowd.enter(device.peer.address)
        self.half_opens.enter(device.peer.address, device)

    def admitted_one(self, device: Guest, keep_alive_s: int, until: float, now: float) -> None:
        """A connection has its session. ``until``: monotonic time at which its login ends."""
        stay = self._stays[device]
        self.admitted_s.observe(now - stay.since)
        self.timeouts.admitted(stay, keep_alive_s, until)
        self.half_opens.leave(device.peer.address, device)

    def expect(self, device: Guest, proving: Proving) -> float:
        """A connected client begins to authenticate again: when it must have done so."""
        return self.timeouts.expect(self._stays[device], proving)

    def closed(self, device: Guest) -> float | None:
        """A connection is over: monotonic time of its beginning, ``None`` if it had been over before."""
        stay = self._stays.pop(device, None)
        if stay is None:
            return None
        stay.end()
        self.counters.left(device.tally)
        self.crowd.leave(device.peer.address)
        if device.session is None:
            self.half_opens.leave(device.peer.address, device)
        return stay.since

    def connected_s(self, device: Guest, now: float) -> float:
        """The age of a connection in seconds."""
        stay = self._stays.get(device)
        return 0.0 if stay is None else now - stay.since

    def failed(self, device: Waiter) -> None:
        """An unforeseen error has come of what a client sent, or of an answer to it: its connection ends, and no other.
        To be called where the error was caught."""
        self.failures += 1
        _log.exception("an unforeseen error; the connection that brought it is closed")
        device.drop()

    def close(self) -> None:
        """The gateway stops: every client gets a DISCONNECT, every will without a delay is published."""
        for device in list(self._stays):
            device.fail(ReasonCode.SERVER_SHUTTING_DOWN)
