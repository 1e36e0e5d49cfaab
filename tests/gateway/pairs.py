"""Two gateways of one cluster at a broker, and what that broker has of their sessions."""

from __future__ import annotations

from rig import Gateway

from broker.sessions.fold import Entry
from penstock.protocol.requests.sessions import CONNECTED, SessionSave


def two_gateways(**settings: object) -> tuple[Gateway, Gateway]:
    """Gateways that have had time to find the home of sessions."""
    one = Gateway(name="one", **settings)
    other = Gateway(beside=one, name="other", **settings)
    for gateway in (one, other):
        gateway.pass_time(1)
    return one, other


def settle(*gateways: Gateway) -> None:
    """Rounds of all gateways until each has heard of what the others did; no time passes."""
    for _ in range(5):
        for gateway in gateways:
            gateway.rounds.begin()
            gateway.round()


def entry_of(gateway: Gateway, client: str = "c") -> Entry:
    """A client's session at its home."""
    entry = gateway.broker.state.sessions.get(client)
    assert entry is not None
    return entry


def save_of(gateway: Gateway, client: str, terms: bytes = b"", flow: bytes = b"") -> SessionSave:
    """A save of a connected client's session as it stands at its home."""
    return SessionSave(client, entry_of(gateway, client).epoch, CONNECTED, 100, b"", terms, flow)
