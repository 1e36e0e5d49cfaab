"""Inbound QoS 2 messages of a client: the state of each packet id, from PUBLISH to PUBREL.

An id is stored once however often its PUBLISH is sent (MQTT-4.3.3-10), and is free again after its PUBREL
(MQTT-4.3.3-12). A client may release a message before it is stored. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# States of an inbound QoS 2 id, from PUBLISH to PUBREL.
STORING: Final = 0
STORED: Final = 1
INHERITED: Final = 2
"""Stored, on an earlier connection."""
RELEASED: Final = 3
"""Released before it is stored, by a client that did not wait for its PUBREC."""

# Nearly all sessions have none, nearly always: one empty dict for all of them. What adds makes its own.
_NONE_INCOMING: Final[dict[int, int]] = {}


class InboundExchanges:
    """The inbound QoS 2 exchanges of one session.

    Attributes:
        incoming: packet id -> its state.
        inherited: ids of these that were not sent on this connection: its quota began anew (MQTT 5, 4.9).
    """

    __slots__ = ("incoming", "inherited")

    def __init__(self) -> None:
        self.incoming = _NONE_INCOMING
        self.inherited = 0

    def inherit_incoming(self, ids: Sequence[int]) -> None:
        """Earlier connections have left these open."""
        self.incoming = dict.fromkeys(ids, INHERITED) or _NONE_INCOMING
        self.inherited = len(self.incoming)

    def begin_incoming(self, packet_id: int) -> int | None:
        """PUBLISH of QoS 2. ``None`` for a new id; for one that is known already whether it is ``STORED``
        (MQTT-4.3.3-10)."""
        state = self.incoming.get(packet_id)
        if state is None:
            self.incoming = self.incoming or {}
            self.incoming[packet_id] = STORING
        elif state == INHERITED:
            self.incoming[packet_id] = state = STORED
            self.inherited -= 1
        return state

    def stored_incoming(self, packet_id: int) -> bool:
        """The message is safe. Whether its PUBREL has come already, and counts from now on."""
        state = self.incoming.get(packet_id)
        if state is not None:
            self.incoming[packet_id] = STORED
        return state == RELEASED

    def comes_early(self, packet_id: int) -> bool:
        """PUBREL. Whether it must wait for its message: an id that is free while that is on its way to the log would
        hide the next message (MQTT-4.3.3-12)."""
        if self.incoming.get(packet_id) not in (STORING, RELEASED):
            return False
        self.incoming[packet_id] = RELEASED
        return True

    def forget_incoming(self, packet_id: int) -> bool:
        """PUBREL, or the message could not be stored: the id is free again (MQTT-4.3.3-12). False if it was unknown."""
        state = self.incoming.pop(packet_id, None)
        if state == INHERITED:
            self.inherited -= 1
        return state is not None
