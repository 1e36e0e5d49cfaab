"""How many examples Hypothesis tries: ``PENSTOCK_EXAMPLES_PART=4`` makes it one in four, for a run that repeats what
another one tries in full."""

from __future__ import annotations

import os

_PART = int(os.environ.get("PENSTOCK_EXAMPLES_PART", "1"))


def examples(count: int) -> int:
    """So many, or the part of them that is asked for."""
    return max(1, count // _PART)
