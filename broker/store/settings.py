"""Settings of the store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How the store uses its disk.

    Attributes:
        segment_bytes: size of a log segment. A record never spans two: a message that does not fit one is refused.
        reserve_step_bytes: how much of a segment is reserved on the disk at a time, so that a full disk refuses a
            record whole.
        ahead_bytes: bytes of the log's room that an idle broker fills with zeros, within a segment, so that the
            syncs of what comes next cost less; 0: none.
        emergency_bytes: kept aside so that offset commits and deletes still work on a full disk; 0 for none.
        chunk_bytes: stretch of log whose index entries are kept in memory before they are sealed into a file;
            longer where the state beside it is large, shorter where messages match very many filters.
        retention_bytes: keep at most this much log; 0 for no limit.
        retention_s: keep segments at most this long after their last record; 0 for ever.
        fresh_bytes: how much of what was appended last is kept in memory for those who read at the end of a queue, in
            bytes of frames; the bodies of what came in runs are kept beside them.
        seal_after_s: silence after which the durable watermark is written down.
    """

    segment_bytes: int = 1 << 30
    reserve_step_bytes: int = 16 << 20
    ahead_bytes: int = 64 << 20
    emergency_bytes: int = 4 << 20
    chunk_bytes: int = 16 << 20
    retention_bytes: int = 0
    retention_s: float = 3 * 24 * 3600.0
    fresh_bytes: int = 1 << 20
    seal_after_s: float = 0.05
