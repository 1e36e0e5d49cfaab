"""Twin of broker/usage.py, on a broker without a network."""

from __future__ import annotations

import pytest

from penstock.errors import Busy
from penstock.protocol.requests.topics import CreateTopic
from penstock.service.troubles import troubles_of
from tests.broker.broker_rig import Rig, now


def fill(rig: Rig, topics: range) -> None:
    for number in topics:
        rig.ask(CreateTopic(f"t{number}", 1))


def test_a_limit_that_is_nearly_used_is_told_of_before_anybody_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(topics_max=20)
    fill(rig, range(18))
    rig.dispatch.tick()
    assert not caplog.messages
    assert rig.service.figures()['penstock_limit_used{limit="topics_max"}'] == 0.9
    fill(rig, range(18, 20))
    for _ in range(3):
        rig.clock.now += 1
        rig.dispatch.tick()
    assert caplog.messages == [
        "100 % of topics_max (20) are used: when all of it is, further ones are refused",
    ]
    assert len(troubles_of(rig.service.figures())) == 1
    assert isinstance(now(rig.handle(CreateTopic("one-more", 1))), Busy)


def test_there_is_a_figure_for_every_limit_of_what_a_broker_keeps() -> None:
    rig = Rig()
    limits = {name for name in rig.service.figures() if name.startswith("penstock_limit_used")}
    kept = ("filters", "groups", "halves", "retained", "sessions", "shares", "topics")
    kept += ("halves_bytes", "retained_bytes", "sessions_bytes", "timers_bytes")
    assert limits == {f'penstock_limit_used{{limit="{what}_max"}}' for what in kept}
