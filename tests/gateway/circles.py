"""What goes with the last that refers to it, and waits for no collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def leaves_none_of(*kinds: type) -> Iterator[None]:
    """Whatever is made of these kinds inside is gone at the end, though nobody collects."""
    gc.collect()
    before = _count(kinds)
    gc.disable()
    try:
        yield
        assert _count(kinds) == before
    finally:
        gc.enable()


def _count(kinds: tuple[type, ...]) -> dict[str, int]:
    found = [type(one) for one in gc.get_objects()]
    return {kind.__name__: found.count(kind) for kind in kinds}
