"""How fast clients may come and speak: token buckets, by time that is an argument.

A ``Bucket`` fills with its rate and holds what a second brings. What a client sends has arrived when it is counted,
so a bucket may fall below zero; its client is then not read until it is level again (``Pacing``), which TCP makes
the client feel, and nothing is lost. So over any stretch a client gets at most its rate, one second's worth, and the
chunk that was read last.

New clients are either let in or refused at once (``Door``): by listener, and by address, where all addresses of one
IPv6 network of 64 bits count as one, because one host has them all. How many connections an address has at a time is
counted by a ``Crowd``.

A rate of 0 is no limit, and costs nothing. Pure.
"""

from __future__ import annotations

import ipaddress
from typing import Final, Protocol

from gateway.auth import Peer
from gateway.quotas import Quotas
from gateway.settings import GatewaySettings

ADDRESSES_MAX: Final = 65_536
"""So many addresses are remembered; a bucket that is full again is not needed and goes first."""
_IPV6_HOST_BITS: Final = 64


class Bucket:
    """``rate`` tokens come each second; at most one second's worth (and at least one) is kept."""

    __slots__ = ("_at", "_left", "_most", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._most = max(rate, 1.0)
        self._left = self._most
        self._at = now

    def _fill(self, now: float) -> None:
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now

    def spend(self, count: float, now: float) -> float:
        """Takes so many tokens, there or not. Returns the seconds until the bucket is level again, 0 if it is."""
        self._fill(now)
        self._left -= count
        return -self._left / self._rate if self._left < 0 else 0.0

    def take(self, now: float) -> bool:
        """Takes one token if there is one."""
        self._fill(now)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def is_full(self, now: float) -> bool:
        """Whether it is as good as new."""
        self._fill(now)
        return self._left >= self._most


class Pace:
    """What one client may still send; ``None`` where there is no limit. ``published`` is counted by its device."""

    __slots__ = ("bytes", "is_waiting", "messages", "published")

    def __init__(self, messages: Bucket | None, bytes: Bucket | None) -> None:
        self.messages = messages
        self.bytes = bytes
        self.published = 0
        self.is_waiting = False


class Paced(Protocol):
    """A client whose reading can be held (``gateway.device.Device``)."""

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
        """How many clients are made to wait at the moment."""
        return len(self._waiting)

    def new(self, now: float) -> Pace | None:
        """For a new client; ``None`` where nothing limits it."""
        if not self._messages and not self._bytes:
            return None
        messages = Bucket(self._messages, now) if self._messages else None
        return Pace(messages, Bucket(self._bytes, now) if self._bytes else None)

    def spend(self, client: Paced, pace: Pace, size: int, now: float) -> int:
        """A client sent so many bytes, and what ``published`` counted since. Makes it wait where that is too much;
        returns the reason code to close it with where it is to be closed instead, else 0."""
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
        """Reads again those who have waited long enough; to be called about twice a second."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                due, client, pace = one
                if due > now:
                    self._waiting.append(one)
                else:
                    pace.is_waiting = False
                    client.release_reading()


class Door:
    """How many clients may come in a second: to each listener, and from each address."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._per_listener = settings.connects_per_s_max
        self._per_address = settings.address_connects_per_s_max
        self._listeners: dict[str, Bucket] = {}
        self._addresses: dict[str, Bucket] = {}

    def over(self, peer: Peer, now: float) -> str:
        """Counts one CONNECT. The limit that it breaks, empty if none."""
        if self._per_address:
            key = _host_of(peer.address)
            bucket = self._addresses.get(key)
            if bucket is None:
                if len(self._addresses) >= ADDRESSES_MAX:
                    self._forget(now)
                bucket = self._addresses[key] = Bucket(self._per_address, now)
            if not bucket.take(now):
                return "address_connects_per_s_max"
        if self._per_listener:
            bucket = self._listeners.get(peer.listener)
            if bucket is None:
                bucket = self._listeners[peer.listener] = Bucket(self._per_listener, now)
            if not bucket.take(now):
                return "connects_per_s_max"
        return ""

    def _forget(self, now: float) -> None:
        kept = {key: bucket for key, bucket in self._addresses.items() if not bucket.is_full(now)}
        self._addresses = kept if len(kept) < ADDRESSES_MAX // 2 else {}


class Crowd:
    """How many connections each address has at a time; nothing is counted where that is not limited."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._present: dict[str, int] = {}

    def enter(self, address: str) -> None:
        """One connection more."""
        if self._most:
            key = _host_of(address)
            self._present[key] = self._present.get(key, 0) + 1

    def leave(self, address: str) -> None:
        """One less."""
        key = _host_of(address) if self._most else ""
        left = self._present.pop(key, 1) - 1
        if left > 0:
            self._present[key] = left

    def has_room(self, address: str) -> bool:
        """Whether one more may come from there."""
        return not self._most or self._present.get(_host_of(address), 0) < self._most

    def is_over(self, address: str) -> bool:
        """Whether there are more from there than may be."""
        return self._most > 0 and self._present.get(_host_of(address), 0) > self._most


def _host_of(address: str) -> str:
    """What counts as one address: an IPv4 address, the network of an IPv6 address, or whatever else it is."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{int(found) >> _IPV6_HOST_BITS:x}::/{_IPV6_HOST_BITS}"
