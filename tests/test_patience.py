from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from tests import patience
from tests.patience import poll, poll_async


async def plain(what: str, ask: Callable[[], Any], **more: Any) -> Any:
    return poll(what, ask, **more)


@pytest.mark.parametrize("asks", [plain, poll_async])
async def test_an_answer_is_asked_for_until_it_holds(asks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience.time, "sleep", lambda _: None)
    answers = iter([ValueError("not yet"), 1, 2, 3])

    def ask() -> int:
        one = next(answers)
        if isinstance(one, Exception):
            raise one
        return one

    assert await asks("two", ask, holds=lambda one: one > 1, despite=ValueError) == 2


@pytest.mark.parametrize("asks", [plain, poll_async])
async def test_the_error_says_what_was_waited_for_and_what_came(asks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.0)
    with pytest.raises(AssertionError, match="for this: a message; the last answer:"):
        await asks("a message", list)


async def test_an_answer_that_never_comes_is_an_error_and_other_errors_are_raised() -> None:
    with pytest.raises(AssertionError, match="for this: the end; the last answer: 'none'"):
        await poll_async("the end", partial(trio.sleep, float("inf")))
    with pytest.raises(ZeroDivisionError):
        await poll_async("a number", lambda: 1 / 0, despite=ValueError)
