"""Reports devices' acknowledgements in traced topics to the brokers that trace them (``broker/messages/trace.py``).

Brokers name the topics that they trace in their answer to ``KeepFilters`` (``filters.py``). A broker knows which
messages it traces; here each acknowledged message of such a topic is a row, at most ``ROWS_MAX`` between two ticks. A
trace is for people: rows above that, and rows not sent when the gateway ends, are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.brokers import Broker
from gateway.sessions.session import Session
from penstock.protocol.requests.filters import FiltersKept
from penstock.protocol.requests.messages import DeviceAck, TellAcknowledged
from penstock.protocol.requests.request import Result

ROWS_MAX: Final = 500
"""Maximum number of rows between two ticks."""


class DeviceTrace:
    """The acknowledgements of one gateway's devices.

    Attributes:
        is_on: whether a broker traces any topic.
    """

    def __init__(self, owner: str) -> None:
        """``owner``: the gateway's name."""
        self._owner = owner
        self._topics: dict[Broker, frozenset[bytes]] = {}
        self._traced: frozenset[bytes] = frozenset()
        self._rows: list[DeviceAck] = []
        self.is_on = False

    def settling(self, session: Session, packet_ids: Sequence[int]) -> None:
        """Notes messages in flight that the client acknowledges."""
        for packet_id in packet_ids:
            if len(self._rows) >= ROWS_MAX:
                return
            made = session.in_flight.get(packet_id)
            if made is None:
                continue
            arrival = made.message(packet_id)
            if arrival.heading.topic in self._traced:
                self._rows.append(DeviceAck(arrival.queue, arrival.queue_offset, arrival.position, session.client_id))

    def kept(self, broker: Broker, result: Result) -> None:
        """Takes a broker's answer to ``KeepFilters``."""
        traced = result.traced if isinstance(result, FiltersKept) else ()
        self._topics[broker] = frozenset([topic.encode() for topic in traced])
        self._traced = frozenset().union(*self._topics.values())
        self.is_on = bool(self._traced)

    def tick(self) -> None:
        """Sends the acknowledgements to the brokers."""
        rows, self._rows = self._rows, []
        if rows:
            for broker, topics in self._topics.items():
                if topics:
                    broker.submit(TellAcknowledged(self._owner, tuple(rows)), _ignore)


def _ignore(result: Result) -> None:
    """A lost row is not sent again."""
