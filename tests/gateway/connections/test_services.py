"""What packets of a connection use."""

from __future__ import annotations

from rig import Gateway


def test_all_connections_of_a_gateway_use_one_record() -> None:
    gateway = Gateway()
    first, second = gateway.connect("a"), gateway.connect("b")
    assert first.device._services is second.device._services is gateway.services
