"""Settings that several services have mean the same in each."""

from __future__ import annotations

from typing import Any

import pytest

from broker.settings import BrokerSettings
from console.settings import ConsoleSettings
from events.settings import EventsSettings
from gateway.settings import GatewaySettings
from namesrv.settings import NamesrvSettings
from penstock.errors import InvalidConfig
from penstock.service.setting import declared
from remoting.settings import RemotingSettings

SERVICES = (BrokerSettings, ConsoleSettings, EventsSettings, GatewaySettings, NamesrvSettings, RemotingSettings)


@pytest.mark.parametrize("name", ["host", "status_host", "status_port", "status_hosts", "cluster_secret_file"])
def test_each_service_declares_it_alike(name: str) -> None:
    first, *others = [declared(one)[name] for one in SERVICES]
    assert all(one == first for one in others)


@pytest.mark.parametrize("kind", SERVICES)
@pytest.mark.parametrize("wrong", [{"status_port": -2}, {"port": -1}, {"connection_log": "all"}])
def test_each_service_refuses_what_is_out_of_bounds(kind: type[Any], wrong: dict[str, object]) -> None:
    if wrong.keys() <= declared(kind).keys():
        with pytest.raises(InvalidConfig, match=f"^{next(iter(wrong))} is "):
            kind(**wrong)
