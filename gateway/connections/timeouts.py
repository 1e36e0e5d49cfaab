"""Timeouts of a connection: until its CONNECT, its keep alive, its authentication again, and the end of its login.

Everything is checked when it is due (``gateway/net/deadlines.py``); a connection that has gone by then is skipped.
Until then only its empty ``Stay`` waits there, and its parts of packets and messages are freed with it. A client that
is not read just now counts as alive as long as unread bytes of it wait. Nothing here waits.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

from gateway.limits.quotas import Quotas
from gateway.mqtt.reason_codes import Reason, ReasonCode, Told
from gateway.net.deadlines import LOOK_S, Deadlines
from gateway.net.rounds import Rounds

_EXPIRED: Final = Told(ReasonCode.NOT_AUTHORIZED, "what was shown at the login has expired")
_READ_SOON_S: Final = 1.0


class Expected(Protocol):
    """A connection that must do something in time (``gateway.connections.device.Device``).

    Attributes:
        keep_alive_s: how often it wants to be heard; 0: never.
        heard_at: monotonic time of the last packet from it, or of the last KiB of one that is not complete.
    """

    keep_alive_s: int
    heard_at: float

    @property
    def waits_to_be_read(self) -> bool:
        """Whether it has sent something that is not read just now."""
        ...

    @property
    def session(self) -> object | None:
        """Its session, once it is admitted."""
        ...

    def fail(self, reason: Reason) -> None:
        """Closes it for a reason."""
        ...

    def give_up(self) -> None:
        """It took too long to say who it is."""
        ...


class Proving(Protocol):
    """A client that authenticates again (``gateway.connections.authenticating.Authenticating``)."""

    def is_late(self, now: float) -> bool:
        """Whether it should have done so by now."""
        ...

    def give_up(self) -> None:
        """It took too long."""
        ...


class Stay:
    """A connection's time here, ``since`` when: ``device`` and, while it authenticates again, ``proving``; both
    ``None`` once it has gone."""

    __slots__ = ("device", "proving", "since")

    def __init__(self, device: Expected, since: float) -> None:
        self.since = since
        self.device: Expected | None = device
        self.proving: Proving | None = None

    def end(self) -> None:
        """It has gone."""
        self.device = self.proving = None


class ConnectionTimeouts:
    """The deadlines of one gateway's connections. ``expired`` counts logins whose time was over."""

    def __init__(self, connect_wait_s: float, quotas: Quotas, rounds: Rounds) -> None:
        self._connect_wait_s = connect_wait_s
        self._quotas = quotas
        self._rounds = rounds
        self._connecting: Deadlines[Stay] = Deadlines()
        self._proving: Deadlines[Stay] = Deadlines()
        self._kept_alive: Deadlines[Stay] = Deadlines()
        self._expiring: Deadlines[tuple[float, Stay]] = Deadlines()
        self.expired = 0

    def opened(self, device: Expected) -> Stay:
        """A connection stands; its CONNECT must come soon. The stay is to be ended with it."""
        stay = Stay(device, self._rounds.now)
        self._connecting.add(self._rounds.now + self._connect_wait_s, stay)
        return stay

    def admitted(self, stay: Stay, keep_alive_s: int, until: float) -> None:
        """It is to be heard so often, and its login counts until then."""
        now = self._rounds.now
        if keep_alive_s:
            self._kept_alive.add(now + min(keep_alive_s * 1.5, LOOK_S), stay)
        if until < math.inf:
            self._expiring.add(min(until, now + LOOK_S), (until, stay))

    def expect(self, stay: Stay, proving: Proving) -> float:
        """A connected client begins to authenticate again: when it must have done so."""
        due = self._rounds.now + self._connect_wait_s
        stay.proving = proving
        self._proving.add(due, stay)
        return due

    def tick(self, now: float) -> None:
        """Everything that is due; to be called about twice a second."""
        for stay in self._connecting.take(now):
            device = stay.device
            if device is not None and device.session is None:
                self._quotas.refuse("connect_wait_s")
                device.give_up()
        for stay in self._proving.take(now):
            one = stay.proving
            if one is not None and one.is_late(now):
                self._quotas.refuse("connect_wait_s")
                one.give_up()
        for until, stay in self._expiring.take(now):
            if stay.device is not None:
                self._check_expiry(until, stay, stay.device, now)
        for stay in self._kept_alive.take(now):
            if stay.device is not None:
                self._check_alive(stay, stay.device, now)

    def _check_alive(self, stay: Stay, device: Expected, now: float) -> None:
        due = device.heard_at + device.keep_alive_s * 1.5
        if due <= now and device.waits_to_be_read:
            due = now + _READ_SOON_S
        if due <= now:  # (MQTT-3.1.2-22)
            device.fail(ReasonCode.KEEP_ALIVE_TIMEOUT)
        else:
            self._kept_alive.add(min(due, now + LOOK_S), stay)

    def _check_expiry(self, until: float, stay: Stay, device: Expected, now: float) -> None:
        """Checks the expiry of a login."""
        if until <= now:
            self.expired += 1
            device.fail(_EXPIRED)
        else:
            self._expiring.add(min(until, now + LOOK_S), (until, stay))
