"""What every running broker says of itself."""

from __future__ import annotations

import logging

import pytest

from broker.net.running import advertised
from broker.settings import BrokerSettings


def test_clients_are_told_where_the_broker_is_or_what_an_operator_says(caplog: pytest.LogCaptureFixture) -> None:
    assert advertised(BrokerSettings(), "127.0.0.1", 7) == "127.0.0.1:7"
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert advertised(BrokerSettings(host="0.0.0.0", insecure=True), "0.0.0.0", 7) == "0.0.0.0:7"
    assert "leads them to themselves" in caplog.text
    told = BrokerSettings(host="0.0.0.0", insecure=True, advertise="host-a:9")
    assert advertised(told, "0.0.0.0", 7) == "host-a:9"
