"""Which seeds a simulation runs, and how each is run and checked.

``PENSTOCK_SEEDS=500`` runs more seeds, ``PENSTOCK_SEED=17`` that one alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class Simulated(Protocol):
    """A world that runs by itself. ``log``: what happened, a line each."""

    log: list[str]

    def run(self) -> None: ...


W = TypeVar("W", bound=Simulated)


def seeds(count: int) -> Sequence[int]:
    """So many, if nobody asks for others."""
    one = os.environ.get("PENSTOCK_SEED")
    return [int(one)] if one else range(int(os.environ.get("PENSTOCK_SEEDS", count)))


def checked(world: W, check: Callable[[W], None], seed: int, test: str) -> W:
    """Runs a world and checks it; a failure says how to run it again (``test``: file and filter), and what happened."""
    try:
        world.run()
        check(world)
    except BaseException as error:
        again = f"PENSTOCK_SEED={seed} .venv/bin/pytest tests/simulation/{test}"
        error.add_note("\n".join(["again:  " + again, *world.log[-60:]]))
        raise
    return world
