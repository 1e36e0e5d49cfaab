"""Figures that a broker counts. Names are RocketMQ 5's where the meaning is the same; docs/guide/metrics.md lists
them."""

from __future__ import annotations

from collections.abc import Callable

from penstock.service.histogram import Histogram


def _no_time() -> int:
    return 0


class Figures:
    """Counters since start, updated per batch. ``read_ms``: the wall clock, in milliseconds since 1970."""

    def __init__(self, read_ms: Callable[[], int] = _no_time) -> None:
        self._read_ms = read_ms
        self._messages_in = 0
        self._bytes_in = 0
        self._messages_out = 0
        self._bytes_out = 0
        self._refused = 0
        self._syncs = 0
        self._synced_s = Histogram()
        self._answered_s = Histogram()
        self._waited_s = Histogram()
        self._travelled_s = Histogram()

    def appended(self, messages: int, size: int, refused: int) -> None:
        """A batch was appended."""
        self._messages_in += messages
        self._bytes_in += size
        self._refused += refused

    def pulled(self, messages: int, size: int) -> None:
        """A pull was answered."""
        self._messages_out += messages
        self._bytes_out += size

    def synced(self, took_s: float = 0.0) -> None:
        """The log was synced once; the sync took ``took_s`` seconds."""
        self._syncs += 1
        self._synced_s.observe(took_s)

    def answered(self, took_s: float) -> None:
        """A request that waited for the disk or for copies was answered, ``took_s`` seconds after it came."""
        self._answered_s.observe(took_s)

    def delivered(self, stored_ms: int, born_ms: int, trace_id: str = "") -> None:
        """A pull was answered, whose last message was stored and sent at these times. ``trace_id``: of the trace that
        it is part of."""
        now_ms = self._read_ms()
        self._waited_s.observe(max(0, now_ms - stored_ms) / 1000, trace_id)
        self._travelled_s.observe(max(0, now_ms - born_ms) / 1000, trace_id)

    def read(self, **gauges: float) -> dict[str, float]:
        """All counters, and the gauges given."""
        return {
            "rocketmq_messages_in_total": self._messages_in,
            "rocketmq_throughput_in_total": self._bytes_in,
            "rocketmq_messages_out_total": self._messages_out,
            "rocketmq_throughput_out_total": self._bytes_out,
            "penstock_messages_refused_total": self._refused,
            "penstock_syncs_total": self._syncs,
            **self._synced_s.figures("penstock_sync_seconds"),
            **self._answered_s.figures("penstock_stored_seconds"),
            **self._waited_s.figures("penstock_delivery_seconds"),
            **self._travelled_s.figures("penstock_end_to_end_seconds"),
            **gauges,
        }
