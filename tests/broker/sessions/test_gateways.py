"""Twin of broker/sessions/gateways.py, on a broker without a network."""

from __future__ import annotations

from broker.sessions import gateways
from penstock.protocol.requests.sessions import KeepSessions, OpenSession
from penstock.service.metrics import with_label
from tests.broker.broker_rig import Rig


def figures_of(rig: Rig, gateway: str) -> tuple[float | None, float | None]:
    """How long it has been silent, and its sessions."""
    figures = rig.service.figures()
    return tuple(
        figures.get(with_label(f"penstock_gateway_{what}", "gateway", gateway)) for what in ("silent_s", "sessions")
    )  # type: ignore[return-value]


def test_a_gateway_is_shown_from_its_first_word_until_it_has_been_silent_for_long() -> None:
    rig = Rig()
    assert figures_of(rig, "gw") == (None, None)
    rig.ask(KeepSessions("gw", 15.0, True, "life"))
    for client in ("a", "b"):
        rig.ask(OpenSession("gw", client, False, 60, b""))
    rig.dispatch.tick()
    assert figures_of(rig, "gw") == (0, 2)
    rig.clock.now += 7
    rig.dispatch.tick()
    assert figures_of(rig, "gw") == (7, 2)
    rig.ask(KeepSessions("gw", 15.0, False, "life"))
    rig.dispatch.tick()
    assert figures_of(rig, "gw") == (0, 2)
    rig.clock.now += gateways.SHOWN_S + 1
    rig.dispatch.tick()
    assert figures_of(rig, "gw") == (None, None)


def test_of_very_many_those_that_were_heard_last_are_known() -> None:
    rig = Rig()
    for number in range(gateways.GATEWAYS_MAX + 1):
        rig.ask(KeepSessions(f"gw{number}", 15.0, True, f"life{number}"))
    assert figures_of(rig, "gw0") == (None, None)
    assert figures_of(rig, "gw1") == (0, 0)
    assert figures_of(rig, f"gw{gateways.GATEWAYS_MAX}") == (0, 0)
