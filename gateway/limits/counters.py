"""What went through each listener: connections, bytes, packets, publications, both ways.

A ``ListenerCounters`` is plain numbers that devices count up, a chunk at a time and never a message at a time;
everything else about figures is done when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.service.metrics import with_label

BEYOND: Final = 65_535
"""Number of messages that a client may have open beyond its Receive Maximum at a lenient listener: more than there are
packet ids, so that bytes alone bound it."""


class ListenerCounters:
    """One listener's counters since the start; ``connected`` is a gauge. ``refused``: closed at the door;
    ``accepts_paced``: how often it waited before it accepted more, because of ``accepts_per_s_max``;
    ``handshakes_failed``: gone, or given up, before a byte of MQTT. ``over_receive_max``: how often a client was found
    to have its Receive Maximum open, and more was taken, because the listener ``is_lenient``.
    ``mount``: the listener's mount point (``gateway/messages/mounts.py``)."""

    __slots__ = (
        "accepts_paced",
        "bytes_in",
        "bytes_out",
        "connected",
        "connects",
        "handshakes_failed",
        "is_lenient",
        "mount",
        "over_receive_max",
        "packets_in",
        "packets_out",
        "publications_in",
        "publications_out",
        "refused",
    )

    def __init__(self, *, is_lenient: bool = False, mount: str = "") -> None:
        self.connected = 0
        self.connects = 0
        self.refused = 0
        self.accepts_paced = 0
        self.handshakes_failed = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.packets_in = 0
        self.packets_out = 0
        self.publications_in = 0
        self.publications_out = 0
        self.is_lenient = is_lenient
        self.mount = mount
        self.over_receive_max = 0

    def entered(self) -> None:
        """One connection more."""
        self.connects += 1
        self.connected += 1

    def left(self) -> None:
        """One connection less."""
        self.connected -= 1

    def turned_away(self) -> None:
        """A connection was not let in."""
        self.refused += 1

    def handshake_failed(self) -> None:
        """A connection has gone before a byte of MQTT."""
        self.handshakes_failed += 1

    def rests(self) -> None:
        """The listener waits before it accepts more."""
        self.accepts_paced += 1

    def room_beyond(self) -> int:
        """How many messages more than the Receive Maximum a client may have open; asked when it has reached that."""
        if not self.is_lenient:
            return 0
        self.over_receive_max += 1
        return BEYOND


# Field of a tally -> the metric.
METRICS: Mapping[str, str] = {
    "connected": "gateway_listener_connections",
    "connects": "gateway_connects_total",
    "refused": "gateway_listener_refused_total",
    "accepts_paced": "gateway_listener_accepts_paced_total",
    "handshakes_failed": "gateway_handshakes_failed_total",
    "over_receive_max": "gateway_over_receive_max_total",
    "bytes_in": "gateway_bytes_in_total",
    "bytes_out": "gateway_bytes_out_total",
    "packets_in": "gateway_packets_in_total",
    "packets_out": "gateway_packets_out_total",
    "publications_in": "gateway_publications_in_total",
    "publications_out": "gateway_publications_out_total",
}


class Counters:
    """The listeners of one gateway. ``most_connected``: the most connections there were at a time."""

    def __init__(self) -> None:
        self._by_listener: dict[str, ListenerCounters] = {}
        self.most_connected = 0

    def open(self, listener: str, *, is_lenient: bool, mount: str) -> ListenerCounters:
        """Those of a listener that opens."""
        tally = self._by_listener[listener] = ListenerCounters(is_lenient=is_lenient, mount=mount)
        return tally

    def of(self, listener: str) -> ListenerCounters:
        """The tally of a listener, made when it is first asked for."""
        tally = self._by_listener.get(listener)
        if tally is None:
            tally = self._by_listener[listener] = ListenerCounters()
        return tally

    def entered(self, tally: ListenerCounters, connected: int) -> None:
        """Counts a connection. ``connected``: the number at all listeners now."""
        tally.entered()
        self.most_connected = max(self.most_connected, connected)

    def left(self, tally: ListenerCounters) -> None:
        """One connection less."""
        tally.left()

    def sums(self) -> dict[str, int]:
        """All listeners together, by metric."""
        tallies = self._by_listener.values()
        return {metric: sum([getattr(tally, field) for tally in tallies]) for field, metric in METRICS.items()}

    def by_listener(self) -> dict[str, int]:
        """Each listener's own, with its name as a label."""
        return {
            with_label(metric, "listener", listener): getattr(tally, field)
            for listener, tally in self._by_listener.items()
            for field, metric in METRICS.items()
        }
