from __future__ import annotations

from penstock import footprint
from penstock.standing import STARTING, Standing


async def test_what_starts_is_not_ready_and_says_what_it_is_doing() -> None:
    standing = Standing()
    assert await standing.reasons() == [STARTING]
    standing.begin("recovering the log")
    assert await standing.reasons() == ["recovering the log"]
    standing.serves()
    assert await standing.reasons() == []


async def test_parts_tell_their_own_as_soon_as_they_are_there() -> None:
    standing = Standing()
    assert (await standing.figures()).keys() == footprint.read().keys()
    standing.add(lambda: {"a": 1.0}, lambda: ["a is ill"])
    assert await standing.reasons() == [STARTING, "a is ill"]
    standing.serves()
    standing.add(lambda: {"b": 2.0}, list)
    figures = await standing.figures()
    assert (figures["a"], figures["b"]) == (1.0, 2.0)
    assert await standing.reasons() == ["a is ill"]
