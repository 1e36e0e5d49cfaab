"""A request whose messages do not fit one segment, cut into parts that do.

A message that no segment holds is a part of its own. A batch is promised nothing as a whole: each of its messages is
stored or refused on its own, in order. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.store.run_frames import frame_bytes
from penstock.protocol.runs import Run


class Part(NamedTuple):
    """Runs of an append. ``first``: the place of their first message in the request. ``size``: bytes of their
    frames."""

    first: int
    messages: int
    runs: list[Run]
    size: int


def cut_runs(runs: list[Run], most: int) -> list[Part]:
    """Parts of at most ``most`` bytes, or of one message."""
    parts: list[Part] = []
    first = number = size = 0
    gathered: list[Run] = []
    for piece, frame in _pieces(runs, most):
        more = frame * len(piece.bodies)
        if gathered and size + more > most:
            parts.append(Part(first, number - first, gathered, size))
            first, gathered, size = number, [], 0
        gathered.append(piece)
        size += more
        number += len(piece.bodies)
    parts.append(Part(first, number - first, gathered, size))
    return parts


def _pieces(runs: list[Run], most: int) -> Iterator[tuple[Run, int]]:
    """Runs of at most ``most`` bytes, or of one message, and the size of each frame."""
    for run in runs:
        frame = frame_bytes(run)
        step = max(1, most // frame)
        if len(run.bodies) <= step:
            yield run, frame
            continue
        for at in range(0, len(run.bodies), step):
            yield run.of(run.bodies[at : at + step], at), frame
