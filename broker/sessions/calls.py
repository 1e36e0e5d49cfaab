"""Calls to owners of sessions: to release a session that another gateway wants.

A living owner is called first, and has ``HANDOVER_S`` to disconnect its client and save the last state. The other
gateway waits for the session's *waker*; the owner gets its calls by a watch. Pure: ``now`` is an argument.
"""

from __future__ import annotations

from typing import Final

from broker.kernel.theme import Wakers
from penstock.protocol.requests.sessions import SessionCall

HANDOVER_S: Final = 1.0


class OwnerCalls:
    """The calls upon all owners."""

    def __init__(self, wakers: Wakers) -> None:
        self._wakers = wakers
        self._of: dict[str, dict[str, SessionCall]] = {}  # owner -> client -> the call
        # client -> the epoch in which its session was asked for last, and until when its owner may let go
        self._until: dict[str, tuple[int, float]] = {}

    def call(self, owner: str, call: SessionCall, now: float) -> float:
        """Calls upon an owner. Until when it may let go: as long as it was given the first time."""
        if self._until.get(call.client, (0, 0.0))[0] != call.epoch:
            self._until[call.client] = call.epoch, now + HANDOVER_S
        self.tell(owner, call)
        return self._until[call.client][1]

    def tell(self, owner: str, call: SessionCall) -> None:
        """An owner is to hear of what was done without it."""
        self._of.setdefault(owner, {})[call.client] = call
        self._wakers[owner_waker(owner)] = None

    def has_had_time(self, client: str, epoch: int, now: float) -> bool:
        """Whether the owner was called upon, by whomever, and has not let go for as long as it may."""
        called, until = self._until.get(client, (0, 0.0))
        return called == epoch and now >= until

    def settle(self, client: str) -> None:
        """A session has another owner or is over: no owner is called for it any more."""
        self._until.pop(client, None)
        for calls in self._of.values():
            calls.pop(client, None)
        self._wakers[client_waker(client)] = None

    def take(self, owner: str) -> tuple[SessionCall, ...]:
        """The calls that an owner has not got yet."""
        return tuple(self._of.pop(owner, {}).values())

    def forget(self, owner: str) -> None:
        """An owner is dead."""
        self._of.pop(owner, None)


def client_waker(client: str) -> str:
    """The waker of a client's session, for a change of hands; no queue has such a name."""
    return f"session {client}"


def owner_waker(owner: str) -> str:
    """The waker of an owner, for requests of its sessions."""
    return f"owner {owner}"
