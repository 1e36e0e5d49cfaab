"""Gateways and their clients over failovers of their broker: no acknowledged message is lost, QoS 2 comes once."""

from __future__ import annotations

import pytest

from tests.simulation import test_shares
from tests.simulation.ends import Ends, check_ends
from tests.simulation.failovers import Led, check
from tests.simulation.seeds import checked, seeds


@pytest.fixture(autouse=True)
def few_packet_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packet ids are used again soon, so that one that is taken for free too early does harm."""
    monkeypatch.setattr("gateway.sessions.session.PACKET_ID_MAX", 16)
    monkeypatch.setattr("gateway.messages.outgoing.PACKET_ID_MAX", 16)


def run(seed: int) -> Led:
    return checked(Led(seed), check, seed, "test_failovers.py -k hold")


@pytest.mark.parametrize("seed", seeds(5))
def test_sessions_order_qos_2_and_retained_messages_hold_over_failovers(seed: int) -> None:
    run(seed)


def test_leaders_do_change_in_these_worlds() -> None:
    world = run(6)
    assert world.elections >= 3
    assert any("loses the lead" in line for line in world.log)


class LedEnds(Led, Ends):
    """Clients that go as leaders change: their wills and sessions."""


class LedShares(Led, test_shares.ShareWorld):
    """Members of shared subscriptions over leaders that change."""


@pytest.mark.parametrize("seed", seeds(4))
def test_wills_and_ends_of_sessions_hold_over_failovers(seed: int) -> None:
    assert checked(LedEnds(seed), check_ends, seed, "test_failovers.py -k wills").elections


@pytest.mark.parametrize("seed", seeds(4))
def test_leases_of_shares_hold_over_failovers(seed: int) -> None:
    checked(LedShares(seed), test_shares.check, seed, "test_failovers.py -k shares")
