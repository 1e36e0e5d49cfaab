"""The seam between a shard and the operating system's readiness list: which sockets have something to do.

``EpollPoller`` is the real one: an epoll whose own descriptor trio waits for, and an eventfd by which a completed reply
wakes the shard. It is edge-triggered: it reports a descriptor once, when something has happened there, so the kernel
looks at each half as often. A caller that has not taken everything asks for another report by ``change``. A test hands
in readiness by itself (tests/gateway/net/test_shard.py). A poller knows descriptors and event masks, never sockets or
clients.
"""

from __future__ import annotations

import os
import select
from typing import Final, Protocol

import trio

from gateway.net.trio_poll import TrioPoll

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
BROKEN: Final = select.EPOLLHUP | select.EPOLLERR
ENDED: Final = select.EPOLLRDHUP
"""The other side sends no more: behind what there is to read, its end is to be read too."""
_ALWAYS: Final = ENDED | select.EPOLLET
EVENTS_MAX: Final = 1024
"""Number of descriptors handled in one round, before the other tasks of the process get their turn."""


class Poller(Protocol):
    """The wait of a shard for sockets that are ready."""

    async def wait(self) -> None:
        """Returns when ``poll`` would return something or ``wake`` was called. A checkpoint."""
        ...

    def wait_here(self) -> bool:
        """The same without a checkpoint, if no other task has anything to do. False otherwise: then ``wait``."""
        ...

    def poll(self) -> list[tuple[int, int]]:
        """Descriptors that are ready, with their event masks; at most ``EVENTS_MAX``. Never waits."""
        ...

    def add(self, descriptor: int, mask: int) -> None: ...

    def change(self, descriptor: int, mask: int) -> None:
        """Sets other events, or the same ones again; the next wait reports what is ready."""
        ...

    def remove(self, descriptor: int) -> None: ...

    def wake(self) -> None:
        """Makes ``wait`` return. Many calls before that are one."""
        ...

    def close(self) -> None:
        """Gives its descriptors back. ``wake`` may still be called, by answers that come late; it does nothing then."""
        ...


class EpollPoller:
    """Linux epoll, driven by trio, or waited for in trio's stead. Each of the two epolls may be in the other, but never
    both at once: which one it is changes with who waits."""

    __slots__ = ("_epoll", "_holds_trio", "_idling", "_is_woken", "_may_idle", "_ready", "_wake_descriptor")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake_descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_descriptor, READ)
        self._is_woken = False
        self._may_idle = True
        self._idling: TrioPoll | None = None
        self._holds_trio = False
        self._ready: list[tuple[int, int]] = []  # what the wait has found

    async def wait(self) -> None:
        if self._holds_trio and self._idling is not None:
            self._holds_trio = False
            self._epoll.unregister(self._idling.descriptor)
        await trio.lowlevel.wait_readable(self._epoll.fileno())
        if self._may_idle and self._idling is None:
            try:
                self._idling = TrioPoll()
            except (AttributeError, TypeError):
                self._may_idle = False

    def wait_here(self) -> bool:
        idling = self._idling
        if idling is None:
            return False
        left_s = idling.left_s()
        if left_s == 0.0:
            return False
        trios = idling.descriptor
        if not self._holds_trio:
            trio.lowlevel.notify_closing(self._epoll.fileno())  # trio forgets it until it waits for it again
            self._epoll.register(trios, READ)
            self._holds_trio = True
        ready = self._epoll.poll(left_s, EVENTS_MAX)
        for one in ready:
            if one[0] == trios:
                ready.remove(one)
                idling.give_turn()
                break
        self._ready = ready
        return bool(ready)

    def poll(self) -> list[tuple[int, int]]:
        ready, self._ready = self._ready, []
        if not ready:
            ready = self._epoll.poll(0, EVENTS_MAX)
        if self._is_woken:
            self._is_woken = False
            os.eventfd_read(self._wake_descriptor)
        return ready

    def add(self, descriptor: int, mask: int) -> None:
        self._epoll.register(descriptor, mask | _ALWAYS)

    def change(self, descriptor: int, mask: int) -> None:
        self._epoll.modify(descriptor, mask | _ALWAYS)

    def remove(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            os.eventfd_write(self._wake_descriptor, 1)

    def close(self) -> None:
        self._is_woken = True
        if self._idling is not None:
            self._idling.close()
        self._epoll.close()
        os.close(self._wake_descriptor)
