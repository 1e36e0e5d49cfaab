"""Connections without an accepted CONNECT, by address: one address that fills the room makes room for the others.

Silent sockets of one address take no place from other addresses: when the room is full, the address that has most loses
its newest one to a client from an address with fewer. A herd behind one address may use the whole room as long as no
other address needs it. Addresses count as ``host_of`` says. Pure.
"""

from __future__ import annotations

from typing import Protocol

from penstock.service.buckets import host_of


class HalfOpen(Protocol):
    """A connection that may be given up (``gateway.connections.device.Device``,
    ``gateway.connections.listeners.PendingConnection``)."""

    def drop(self, why: str = "") -> None:
        """Closes without a word to the client; it leaves at once."""
        ...


class HalfOpens:
    """The half-open connections of one gateway, by host."""

    def __init__(self) -> None:
        self._by_host: dict[str, dict[HalfOpen, None]] = {}
        self._hosts: dict[int, dict[str, None]] = {}  # a number of connections -> the hosts that have it
        self._most = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, address: str, one: HalfOpen) -> None:
        """One connection more."""
        host = host_of(address)
        here = self._by_host.setdefault(host, {})
        here[one] = None
        self._count += 1
        self._moved(host, len(here) - 1, len(here))

    def leave(self, address: str, one: HalfOpen) -> None:
        """One less: it is gone, or its CONNECT is accepted."""
        host = host_of(address)
        here = self._by_host[host]
        del here[one]
        self._count -= 1
        self._moved(host, len(here) + 1, len(here))
        if not here:
            del self._by_host[host]

    def make_room(self, address: str) -> bool:
        """Gives up a connection of the address that has most, for one from here. False where that would leave it
        fewer than there are from here then."""
        if self._most <= len(self._by_host.get(host_of(address), ())) + 1:
            return False
        host = next(iter(self._hosts[self._most]))
        next(reversed(self._by_host[host])).drop("half_open_max: its address has most of those without a CONNECT")
        return True

    def _moved(self, host: str, before: int, now: int) -> None:
        """A host has one more, or one less."""
        if before:
            hosts = self._hosts[before]
            del hosts[host]
            if not hosts:
                del self._hosts[before]
        if now:
            self._hosts.setdefault(now, {})[host] = None
        if now > self._most or (before == self._most and before not in self._hosts):
            self._most = now
