"""Settings that several services have mean the same in each."""

from __future__ import annotations

from typing import Any

import pytest

from broker.settings import BrokerSettings
from console.settings import ConsoleSettings
from events.settings import EventsSettings
from gateway.settings import GatewaySettings
from namesrv.settings import NamesrvSettings
from node.settings import NodeSettings
from penstock.errors import InvalidConfig
from penstock.service.setting import Setting, declared
from remoting.settings import RemotingSettings

SERVICES = (BrokerSettings, ConsoleSettings, EventsSettings, GatewaySettings, NamesrvSettings, RemotingSettings)


@pytest.mark.parametrize("name", ["host", "status_host", "status_port", "status_hosts", "cluster_secret_file"])
def test_each_service_declares_it_alike(name: str) -> None:
    first, *others = [declared(one)[name] for one in SERVICES]
    assert all(one == first for one in others)


def wrong(one: Setting) -> list[Any]:
    """Values that a declaration does not allow."""
    beyond = {one.least and one.least - 1, one.above, one.most and one.most + 1} - {None, 0}
    return [
        *beyond,
        *([-1] if one.least == 0 else []),
        *([0] if one.above == 0 else []),
        *(["?"] if one.choices else []),
    ]


@pytest.mark.parametrize("kind", [*SERVICES, NodeSettings])
def test_each_service_refuses_what_is_out_of_bounds(kind: type[Any]) -> None:
    for name, one in declared(kind).items():
        for value in wrong(one):
            given = (value,) if isinstance(getattr(kind(), name), tuple) else value
            with pytest.raises(InvalidConfig, match=f"^{name} is "):
                kind(**{name: given})


@pytest.mark.parametrize("kind", [*SERVICES, NodeSettings])
def test_every_number_has_its_bounds(kind: type[Any]) -> None:
    numbers = [name for name in declared(kind) if type(getattr(kind(), name)) in (int, float)]
    assert [name for name in numbers if declared(kind)[name].least is declared(kind)[name].above] == []
