"""Retention: the segments that may be removed, by age and by size. Pure.

Age never removes a segment that a named reader still needs. The size limit does; such a removal is *forced*, and
announced with its positions. Segments are removed whole, from the log's beginning, and only if the log can be read from
the next one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgpack

from broker.store.frames import read_stored
from broker.store.records import REMOVED_TOPIC
from broker.store.settings import StoreSettings
from penstock.protocol.message import FRAME_HEAD_BYTES, record_body

_REMOVED: Final = REMOVED_TOPIC.encode()


def removed_by(frame: bytes, position: int) -> int:
    """The position before which the good frame at ``position`` says that the log is removed; 0 for other frames."""
    if _REMOVED not in frame or read_stored(frame, position).topic != REMOVED_TOPIC:
        return 0
    return int(msgpack.unpackb(record_body(memoryview(frame)[FRAME_HEAD_BYTES:]))[0])


class Removal(NamedTuple):
    """Positions ``start`` to ``end`` go. ``forced``: a reader still needed some of them."""

    start: int
    end: int
    forced: bool


def segments_to_drop(
    bases: Sequence[int],
    end: int,
    safe: int,
    needed_from: int | None,
    has_keyframe: Callable[[int], bool],
    stored_ms: Callable[[int], int],
    now_ms: int,
    settings: StoreSettings,
) -> Removal | None:
    """The removal to make, None for none.

    Args:
        bases: first positions of the segments; the last one is being written and stays.
        end: the log's end.
        safe: everything before is durable and its index is sealed.
        needed_from: everything before was read by all named readers; None without readers.
        has_keyframe: whether the log can be read from a segment alone.
        stored_ms: store time of a segment's first readable record: all before it are older.
    """
    start = keep_from = bases[0]
    forced = False
    for following in bases[1:]:
        if following > safe:
            break
        needed = needed_from is not None and following > needed_from
        too_much = 0 < settings.retention_bytes < end - keep_from
        too_old = 0 < settings.retention_s * 1000 < now_ms - stored_ms(following)
        if not (too_much or (too_old and not needed)):
            break
        if has_keyframe(following):
            keep_from = following
            forced = needed
    return Removal(start, keep_from, forced) if keep_from > start else None
