"""Themes of a broker: what they have is found, and none holds up another."""

from __future__ import annotations

from broker.kernel.handler import handlers_of, handles
from broker.kernel.outcomes import Now, Outcome, Parked
from broker.kernel.theme import Themes, Wakers
from penstock.errors import StorageFull
from penstock.protocol.requests.request import Done, Result
from penstock.protocol.requests.servers import Ping


class Rounds:
    """A toy theme: whoever asks waits for the next round, which time brings."""

    def __init__(self, wakers: Wakers) -> None:
        self._wakers = wakers
        self._rounds = 0

    @handles(Ping)
    def wait(self, request: Ping, now: float, now_ms: int) -> Outcome:
        seen = self._rounds

        def again(last: bool) -> Result | None:
            return Done() if last or self._rounds > seen else None

        return Parked(("rounds",), now + 60.0, again)

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        self._rounds += 1
        self._wakers["rounds"] = None

    def figures(self) -> dict[str, float]:
        return {"rounds_total": self._rounds}


class Full:
    """One for which the disk has no room."""

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        raise StorageFull("full")


def test_a_theme_is_added_in_one_place() -> None:
    wakers: Wakers = {}
    themes = (Full(), Rounds(wakers), object())
    outcome = handlers_of(themes)[Ping](Ping(), 0.0, 0)
    assert isinstance(outcome, Parked)
    assert outcome.retry(False) is None
    together = Themes(themes)
    together.tick(0.0, 0, 0)
    assert list(wakers) == list(outcome.wakers)
    assert outcome.retry(False) == Done()
    assert together.figures() == {"rounds_total": 1}
    assert not isinstance(outcome, Now)
