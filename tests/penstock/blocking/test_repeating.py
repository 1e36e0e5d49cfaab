"""What fails is repeated until it succeeds, cannot be mended, or its time is over."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.blocking.repeating import Repeating
from penstock.errors import InvalidRequest, PenstockError, Unavailable
from penstock.world import RealClock, new_rng


def repeating(timeout_s: float) -> Repeating:
    return Repeating(timeout_s, RealClock(), new_rng(), logging.getLogger("test"))


def failing(*errors: PenstockError) -> Any:
    """A call that fails so often; ``made`` counts its calls."""

    def work() -> None:
        work.made += 1  # type: ignore[attr-defined]
        if work.made <= len(errors):  # type: ignore[attr-defined]
            raise errors[work.made - 1]  # type: ignore[attr-defined]

    work.made = 0  # type: ignore[attr-defined]
    return work


def test_a_call_is_repeated_until_it_succeeds() -> None:
    work = failing(Unavailable("a"), Unavailable("b"))
    repeating(60.0).run(work)
    assert work.made == 3


@pytest.mark.parametrize(
    ("errors", "timeout_s", "calls", "raised"),
    [([Unavailable("a"), InvalidRequest("b")], 60.0, 2, "b"), ([Unavailable("a"), Unavailable("b")], 0.0, 1, "a")],
)
def test_what_cannot_be_mended_or_takes_too_long_is_raised(
    errors: list[PenstockError], timeout_s: float, calls: int, raised: str
) -> None:
    work = failing(*errors)
    with pytest.raises(PenstockError, match=raised):
        repeating(timeout_s).run(work)
    assert work.made == calls
