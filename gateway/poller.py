"""The seam between a shard and the operating system's readiness list: which sockets have something to do.

``EpollPoller`` is the real one: level-triggered epoll whose own descriptor trio waits for, and an eventfd by which
a completed reply wakes the shard. A test hands in readiness by itself (tests/gateway/test_shard.py). A poller knows
descriptors and event masks, never sockets or clients.
"""

from __future__ import annotations

import os
import select
from typing import Final, Protocol

import trio

from gateway.idling import Idling

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
BROKEN: Final = select.EPOLLHUP | select.EPOLLERR
EVENTS_MAX: Final = 512
"""Descriptors handled in one round: the other tasks of the process get their turn after so many."""


class Poller(Protocol):
    async def wait(self) -> None:
        """Returns when ``poll`` would return something or ``wake`` was called. A checkpoint."""
        ...

    def wait_here(self) -> bool:
        """The same without a checkpoint, where nobody else has anything to do; False where that is not so, or is so no
        longer: then ``wait``."""
        ...

    def poll(self) -> list[tuple[int, int]]:
        """Descriptors that are ready, with their event masks; at most ``EVENTS_MAX``. Never waits."""
        ...

    def add(self, descriptor: int, mask: int) -> None: ...

    def change(self, descriptor: int, mask: int) -> None: ...

    def remove(self, descriptor: int) -> None: ...

    def wake(self) -> None:
        """Makes ``wait`` return. Many calls before that are one."""
        ...

    def close(self) -> None:
        """Gives its descriptors back. ``wake`` may still be called, by answers that come late; it does nothing then."""
        ...


class EpollPoller:
    """Linux epoll, driven by trio."""

    __slots__ = ("_epoll", "_idling", "_is_woken", "_may_idle", "_wake_descriptor")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake_descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_descriptor, READ)
        self._is_woken = False
        self._may_idle = True
        self._idling: Idling | None = None

    async def wait(self) -> None:
        await trio.lowlevel.wait_readable(self._epoll.fileno())
        if self._may_idle and self._idling is None:
            try:
                self._idling = Idling(self._epoll.fileno())
            except (AttributeError, TypeError):
                self._may_idle = False

    def wait_here(self) -> bool:
        return self._idling is not None and self._idling.wait()

    def poll(self) -> list[tuple[int, int]]:
        ready = self._epoll.poll(0, EVENTS_MAX)
        if self._is_woken:
            self._is_woken = False
            os.eventfd_read(self._wake_descriptor)
        return ready

    def add(self, descriptor: int, mask: int) -> None:
        self._epoll.register(descriptor, mask)

    def change(self, descriptor: int, mask: int) -> None:
        self._epoll.modify(descriptor, mask)

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
