from __future__ import annotations

from penstock.service import footprint
from penstock.service.readiness import STARTING, Readiness


async def test_what_starts_is_not_ready_and_says_what_it_is_doing() -> None:
    readiness = Readiness()
    assert await readiness.reasons() == [STARTING]
    readiness.begin("recovering the log")
    assert await readiness.reasons() == ["recovering the log"]
    readiness.serves()
    assert await readiness.reasons() == []


async def test_parts_tell_their_own_as_soon_as_they_are_there() -> None:
    readiness = Readiness()
    assert (await readiness.figures()).keys() == footprint.read().keys()
    readiness.add(lambda: {"a": 1.0}, lambda: ["a is ill"])
    assert await readiness.reasons() == [STARTING, "a is ill"]
    readiness.serves()
    readiness.add(lambda: {"b": 2.0}, list)
    figures = await readiness.figures()
    assert (figures["a"], figures["b"]) == (1.0, 2.0)
    assert await readiness.reasons() == ["a is ill"]
