"""Which segments of the log may go, by age and by size. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.store.settings import StoreSettings


def segments_to_drop(
    bases: Sequence[int],
    end: int,
    may_begin_at: Callable[[int], bool],
    stored_ms: Callable[[int], int],
    now_ms: int,
    settings: StoreSettings,
) -> int:
    """The position at which the log shall begin: the first segment's if nothing may go.

    Args:
        bases: first positions of the segments; the last one is being written and stays.
        end: the log's end.
        may_begin_at: whether the log can be read from a segment alone (it begins with a keyframe, and all before is
        sealed).
        stored_ms: store time of a segment's first record; a segment is as old as the first record after it.
    """
    keep_from = bases[0]
    for following in bases[1:]:
        too_old = settings.retention_s and now_ms - stored_ms(following) > settings.retention_s * 1000
        too_much = settings.retention_bytes and end - keep_from > settings.retention_bytes
        if not (too_old or too_much) or not may_begin_at(following):
            break
        keep_from = following
    return keep_from
