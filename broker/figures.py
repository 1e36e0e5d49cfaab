"""What a broker counts. Names are RocketMQ 5's where the meaning is the same; docs/guide/operator.md lists them."""

from __future__ import annotations


class Figures:
    """Counters since start, updated per batch."""

    def __init__(self) -> None:
        self._counters: dict[str, float] = {
            "rocketmq_messages_in_total": 0,
            "rocketmq_throughput_in_total": 0,
            "rocketmq_messages_out_total": 0,
            "rocketmq_throughput_out_total": 0,
            "penstock_messages_refused_total": 0,
            "penstock_syncs_total": 0,
        }

    def appended(self, messages: int, size: int, refused: int) -> None:
        """A batch was appended."""
        self._counters["rocketmq_messages_in_total"] += messages
        self._counters["rocketmq_throughput_in_total"] += size
        self._counters["penstock_messages_refused_total"] += refused

    def pulled(self, messages: int, size: int) -> None:
        """A pull was answered."""
        self._counters["rocketmq_messages_out_total"] += messages
        self._counters["rocketmq_throughput_out_total"] += size

    def synced(self) -> None:
        """The log was synced once."""
        self._counters["penstock_syncs_total"] += 1

    def read(self, **gauges: float) -> dict[str, float]:
        """All counters, and the gauges given."""
        return self._counters | gauges
