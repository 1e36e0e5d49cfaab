"""Fold of inbound QoS 2 exchanges: under which packet ids of which session a message is stored that its client has
not released yet.

The record of the message says so itself (``FLAG_ONCE`` and the property ``MQTT_ID``), so that message and exchange are
one append: however often a client sends a message again, to whichever gateway, it is stored once. An id is free
again when its release is durable. A message that a gateway sent before it lost the session may arrive after all that,
so it also says in which epoch it was sent, and the next owner of the session has earlier epochs fenced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from broker.kernel.fold import fact_of
from broker.kernel.frozen import Table
from broker.sessions.fold import SessionEnded
from broker.store.records import NO_CHANGE, Change, Stored
from penstock.protocol.message import CLIENT_ID, FLAG_ONCE, MQTT_ID, property_of
from topicmap.queues import SYSTEM_PREFIX

_CLIENT_ID: Final = CLIENT_ID.encode()
_MQTT_ID: Final = MQTT_ID.encode()
TOPIC: Final = "%sys%exchanges"
_EXCHANGE: Final = re.compile(r"([0-9]{1,19}):([0-9]{1,19}):([0-9]{1,5})")

Open = tuple[int, set[int], int]
"""Generation, open ids, and the first epoch that is not fenced off."""


class Exchanges:
    """Open exchanges of all sessions. A client's newer session replaces what is left of its older one."""

    KEY: Final = "exchanges"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = FLAG_ONCE

    def __init__(self) -> None:
        self._of: Table[Open] = Table()

    def __len__(self) -> int:
        return len(self._of)

    def ids(self, client: str, generation: int) -> list[int]:
        """Packet ids of stored messages that were not released, in order."""
        known = self._of.get(client)
        return sorted(known[1]) if known is not None and known[0] == generation else []

    def holds(self, client: str, generation: int, packet_id: int) -> bool:
        """Whether the message of this exchange is stored."""
        known = self._of.get(client)
        return known is not None and known[0] == generation and packet_id in known[1]

    def is_fenced(self, client: str, generation: int, epoch: int) -> bool:
        """Whether a later epoch of this session, or a later session of this client, has begun."""
        known = self._of.get(client)
        return known is not None and (generation, epoch) < (known[0], known[2])

    def stored(self, client: str, generation: int, packet_id: int) -> None:
        """The message of this exchange is stored."""
        known = self._of.get(client)
        if known is None or known[0] < generation:
            self._of[client] = (generation, {packet_id}, 0)
        elif known[0] == generation:
            self._of.own(client, _copied)[1].add(packet_id)

    def sessions(self) -> list[tuple[str, int]]:
        """Client and generation of all sessions that something is known of."""
        return [(client, known[0]) for client, known in self._of.items()]

    def knows(self, client: str, generation: int) -> bool:
        """Whether anything is known of this session."""
        known = self._of.get(client)
        return known is not None and known[0] == generation

    @staticmethod
    def fact(client: str, generation: int, ids: Sequence[int]) -> list[Any]:
        """Body of the record that releases ids; none: all of the session."""
        return [client, generation, list(ids)]

    @staticmethod
    def fencing(client: str, generation: int, epoch: int) -> list[Any]:
        """Body of the record that fences earlier epochs off."""
        return [client, generation, [], epoch]

    def apply(self, record: Stored) -> Change:
        if record.topic.startswith(SYSTEM_PREFIX):
            self._apply(fact_of(record))
        else:
            exchange = exchange_of(property_of(record.properties, _MQTT_ID).decode("utf-8", "replace"))
            if exchange is not None:
                client = property_of(record.properties, _CLIENT_ID).decode("utf-8", "replace")
                self.stored(client, exchange[0], exchange[2])
        return NO_CHANGE

    def follow(self, change: Change) -> Change:
        """The exchanges of a session end with it."""
        for event in change.events:
            if isinstance(event, SessionEnded):
                self._apply(Exchanges.fact(event.client, event.generation, ()))
        return NO_CHANGE

    def _apply(self, body: list[Any]) -> None:
        client, generation, ids = body[:3]
        known = self._of.get(client)
        if len(body) > 3:
            self._fence(client, generation, body[3])
        elif known is None or known[0] != generation:
            return
        elif ids:
            known = self._of.own(client, _copied)
            known[1].difference_update(ids)
            if not known[1] and not known[2]:
                del self._of[client]
        else:
            del self._of[client]

    def _fence(self, client: str, generation: int, epoch: int) -> None:
        known = self._of.get(client)
        if known is None or known[0] < generation:
            self._of[client] = (generation, set(), epoch)
        elif known[0] == generation:
            self._of[client] = (generation, set(known[1]), max(epoch, known[2]))

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return self._of.rows(_row)

    def freeze(self) -> Iterator[bytes]:
        return self._of.freeze(_row)

    def restore(self, snapshot: list[Any] | None) -> None:
        self._of = Table((client, (generation, set(ids), epoch)) for client, generation, ids, epoch in snapshot or ())


def _copied(exchanges: Open) -> Open:
    return exchanges[0], set(exchanges[1]), exchanges[2]


def _row(client: str, exchanges: Open) -> list[Any]:
    return [client, exchanges[0], sorted(exchanges[1]), exchanges[2]]


def exchange_of(value: str) -> tuple[int, int, int] | None:
    """Generation, epoch and packet id in the property of a message; ``None`` for what is no such value."""
    found = _EXCHANGE.fullmatch(value)
    if found is None or not 0 < int(found[3]) < 1 << 16:
        return None
    return int(found[1]), int(found[2]), int(found[3])
