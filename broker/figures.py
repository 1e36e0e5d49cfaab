"""Figures that a broker counts. Names are RocketMQ 5's where the meaning is the same; docs/guide/metrics.md lists
them."""

from __future__ import annotations


class Figures:
    """Counters since start, updated per batch."""

    def __init__(self) -> None:
        self._messages_in = 0
        self._bytes_in = 0
        self._messages_out = 0
        self._bytes_out = 0
        self._refused = 0
        self._syncs = 0

    def appended(self, messages: int, size: int, refused: int) -> None:
        """A batch was appended."""
        self._messages_in += messages
        self._bytes_in += size
        self._refused += refused

    def pulled(self, messages: int, size: int) -> None:
        """A pull was answered."""
        self._messages_out += messages
        self._bytes_out += size

    def synced(self) -> None:
        """The log was synced once."""
        self._syncs += 1

    def read(self, **gauges: float) -> dict[str, float]:
        """All counters, and the gauges given."""
        return {
            "rocketmq_messages_in_total": self._messages_in,
            "rocketmq_throughput_in_total": self._bytes_in,
            "rocketmq_messages_out_total": self._messages_out,
            "rocketmq_throughput_out_total": self._bytes_out,
            "penstock_messages_refused_total": self._refused,
            "penstock_syncs_total": self._syncs,
            **gauges,
        }
