"""How fast clients may come and speak: token buckets, by time that is an argument.

A bucket (``penstock/service/buckets.py``) fills with its rate and holds what a second brings. What a client sends has
arrived when it is counted, so a bucket may fall below zero; its client is then not read until it is level again
(``Pacing``), which TCP makes the client feel, and nothing is lost. So over any stretch a client gets at most its rate,
one second's worth, and the chunk that was read last.

New clients are either let in or refused at once (``Door``): by listener, and by address, where all addresses of one
IPv6 network of 64 bits count as one, because one host has them all. How many connections an address has at a time is
counted by a ``Crowd``, and how often connections take a session from each other by ``Takeovers``.

A rate of 0 is no limit, and costs nothing. Pure.
"""

from __future__ import annotations

from typing import Protocol

from gateway.limits.quotas import Quotas
from gateway.login.auth import Peer
from gateway.mqtt.reason_codes import Reason
from gateway.settings import GatewaySettings
from penstock.service.buckets import Bucket, Buckets, host_of


class Pace:
    """Rates of one client; ``None`` where there is no limit. ``published`` is counted by its device."""

    __slots__ = ("bytes", "is_waiting", "messages", "published")

    def __init__(self, messages: Bucket | None, bytes: Bucket | None) -> None:
        self.messages = messages
        self.bytes = bytes
        self.published = 0
        self.is_waiting = False


class Paced(Protocol):
    """A client whose reading can be held (``gateway.connections.device.Device``). ``is_over``: whether its connection
    is over."""

    is_over: bool

    def hold_reading(self) -> None: ...

    def release_reading(self) -> None: ...


class Pacing:
    """The rates of clients, and those that are not read because they were too fast."""

    def __init__(self, settings: GatewaySettings, quotas: Quotas) -> None:
        self._messages = settings.messages_per_s_max
        self._bytes = settings.bytes_per_s_max
        self._closes = settings.over_rate == "close"
        self._quotas = quotas
        self._waiting: list[tuple[float, Paced, Pace]] = []

    @property
    def waiting(self) -> int:
        """The number of clients that are made to wait at the moment."""
        return len(self._waiting)

    def new(self, now: float) -> Pace | None:
        """For a new client; ``None`` where nothing limits it."""
        if not self._messages and not self._bytes:
            return None
        messages = Bucket(self._messages, now) if self._messages else None
        return Pace(messages, Bucket(self._bytes, now) if self._bytes else None)

    def spend(self, client: Paced, pace: Pace, size: int, now: float) -> Reason:
        """Charges the bytes that a client sent, and the publications that ``published`` counted since. Makes it wait if
        that is too much; returns the reason code to close it with where it is to be closed instead, else 0."""
        published, pace.published = pace.published, 0
        wait_s, limit = 0.0, ""
        for bucket, count, name in (
            (pace.messages, published, "messages_per_s_max"),
            (pace.bytes, size, "bytes_per_s_max"),
        ):
            late_s = bucket.spend(count, now) if bucket is not None else 0.0
            if late_s > wait_s:
                wait_s, limit = late_s, name
        if not limit:
            return 0
        if not pace.is_waiting:
            reason = self._quotas.refuse(limit)
            if self._closes:
                return reason
            pace.is_waiting = True
            client.hold_reading()
            self._waiting.append((now + wait_s, client, pace))
        return 0

    def tick(self, now: float) -> None:
        """Reads again those who have waited long enough, and forgets those who have gone; to be called about twice a
        second."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                due, client, pace = one
                if due > now and not client.is_over:
                    self._waiting.append(one)
                else:
                    pace.is_waiting = False
                    client.release_reading()


class Door:
    """Rates of CONNECTs: to each listener, and from each address."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._listeners = Buckets(settings.connects_per_s_max)
        self._addresses = Buckets(settings.address_connects_per_s_max)

    def over(self, peer: Peer, now: float) -> str:
        """Counts one CONNECT. The limit that it breaks, empty if none."""
        if self._addresses.is_limit and not self._addresses.take(host_of(peer.address), now):
            return "address_connects_per_s_max"
        return "" if self._listeners.take(peer.listener, now) else "connects_per_s_max"


class Takeovers:
    """Rates of takeovers, by client id: clients that have the same id, by mistake or on purpose, would throw each other
    out for ever, at the cost of a handover each time.

    Attributes:
        count: how many there were.
    """

    def __init__(self, per_min_max: int) -> None:
        self._buckets = Buckets(per_min_max / 60, per_min_max)
        self.count = 0

    def note(self, client_id: str, now: float) -> None:
        """One more."""
        self.count += 1
        self._buckets.spend(client_id, now)

    def are_over(self, client_id: str, now: float) -> bool:
        """Whether the rate is used up, so that the next client must wait."""
        return not self._buckets.has(client_id, now)


class Crowd:
    """Counts of each address's connections; nothing is counted where that is not limited."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._present: dict[str, int] = {}

    def enter(self, address: str) -> None:
        """One connection more."""
        if self._most:
            key = host_of(address)
            self._present[key] = self._present.get(key, 0) + 1

    def leave(self, address: str) -> None:
        """One less."""
        key = host_of(address) if self._most else ""
        left = self._present.pop(key, 1) - 1
        if left > 0:
            self._present[key] = left

    def has_room(self, address: str) -> bool:
        """Whether one more may come from there."""
        return not self._most or self._present.get(host_of(address), 0) < self._most

    def is_over(self, address: str) -> bool:
        """Whether there are more from there than may be."""
        return self._most > 0 and self._present.get(host_of(address), 0) > self._most
