"""What fails is repeated until it succeeds, cannot be mended, or its time is over."""

from __future__ import annotations

import logging

import pytest

from penstock.client.repeating import Repeating
from penstock.errors import InvalidRequest, PenstockError, Unavailable
from penstock.world import RealClock, new_rng


@pytest.mark.parametrize(
    ("errors", "timeout_s", "calls", "raised"),
    [
        ([Unavailable("a"), Unavailable("b")], 60.0, 3, ""),
        ([Unavailable("a"), InvalidRequest("b")], 60.0, 2, "b"),
        ([Unavailable("a"), Unavailable("b")], 0.0, 1, "a"),
    ],
)
async def test_a_call_is_repeated_as_long_as_that_may_help(
    errors: list[PenstockError], timeout_s: float, calls: int, raised: str
) -> None:
    made: list[int] = []

    async def work() -> None:
        made.append(1)
        if len(made) <= len(errors):
            raise errors[len(made) - 1]

    repeating = Repeating(timeout_s, RealClock(), new_rng(), logging.getLogger("test"))
    if raised:
        with pytest.raises(PenstockError, match=raised):
            await repeating.run(work)
    else:
        await repeating.run(work)
    assert len(made) == calls
