"""Fold of inbound QoS 2 exchanges: under which packet ids of which session a message is stored that its client has
not released yet.

The record of the message says so itself (``FLAG_ONCE`` and the property ``MQTT_ID``), so that message and exchange are
one append: however often a client sends a message again, to whichever gateway, it is stored once. An id is free
again when its release is durable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from broker.folds.frozen import Table

KEY: Final = "exchanges"
TOPIC: Final = "%sys%exchanges"


class Exchanges:
    """Open exchanges of all sessions. A client's newer session replaces what is left of its older one."""

    def __init__(self) -> None:
        self._of: Table[tuple[int, set[int]]] = Table()

    def __len__(self) -> int:
        return len(self._of)

    def ids(self, client: str, incarnation: int) -> list[int]:
        """Packet ids of stored messages that were not released, in order."""
        known = self._of.get(client)
        return sorted(known[1]) if known is not None and known[0] == incarnation else []

    def holds(self, client: str, incarnation: int, packet_id: int) -> bool:
        """Whether the message of this exchange is stored."""
        known = self._of.get(client)
        return known is not None and known[0] == incarnation and packet_id in known[1]

    def stored(self, client: str, incarnation: int, packet_id: int) -> None:
        """The message of this exchange is stored."""
        known = self._of.get(client)
        if known is None or known[0] < incarnation:
            self._of[client] = (incarnation, {packet_id})
        elif known[0] == incarnation:
            self._of.own(client, _copied)[1].add(packet_id)

    @staticmethod
    def fact(client: str, incarnation: int, ids: Sequence[int]) -> list[Any]:
        """Body of the record that releases ids; none: all of the session."""
        return [client, incarnation, list(ids)]

    def apply(self, body: list[Any]) -> None:
        """Takes in a record's body."""
        client, incarnation, ids = body[:3]
        known = self._of.get(client)
        if known is None or known[0] != incarnation:
            return
        known = self._of.own(client, _copied)
        known[1].difference_update(ids or list(known[1]))
        if not known[1]:
            del self._of[client]

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return self._of.rows(_row)

    def freeze(self) -> Iterator[bytes]:
        """The state as bytes of msgpack, as it is now; made later, a slice at a time."""
        return self._of.freeze(_row)

    def restore(self, snapshot: list[Any]) -> None:
        """Takes the state of a snapshot."""
        self._of = Table((client, (incarnation, set(ids))) for client, incarnation, ids in snapshot)


def _copied(exchanges: tuple[int, set[int]]) -> tuple[int, set[int]]:
    return exchanges[0], set(exchanges[1])


def _row(client: str, exchanges: tuple[int, set[int]]) -> list[Any]:
    return [client, exchanges[0], sorted(exchanges[1])]


def exchange_of(value: str) -> tuple[int, int] | None:
    """Incarnation and packet id in the property of a message; ``None`` for what is no such value."""
    incarnation, _, packet_id = value.partition(":")
    if not (incarnation.isascii() and incarnation.isdigit() and packet_id.isascii() and packet_id.isdigit()):
        return None
    if len(incarnation) > 19 or len(packet_id) > 5 or not 0 < int(packet_id) < 1 << 16:
        return None
    return int(incarnation), int(packet_id)
