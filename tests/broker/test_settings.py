from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from broker.settings import BrokerSettings
from broker.store.settings import StoreSettings
from namesrv.settings import NamesrvSettings
from penstock.errors import InvalidConfig


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a b"},
        {"default_level": "quorum"},
        {"default_queues": 5, "queues_max": 4},
    ],
)
def test_a_value_outside_its_limits_is_refused_by_its_name(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(wrong))):
        BrokerSettings(**wrong)  # type: ignore[arg-type]


def test_a_broker_asks_for_no_longer_lease_than_name_servers_give() -> None:
    """It would renew too late, and be away until then."""
    assert BrokerSettings(lease_s=NamesrvSettings().lease_s_max).lease_s == NamesrvSettings().lease_s_max
    with pytest.raises(InvalidConfig, match="lease_s is 601"):
        BrokerSettings(lease_s=601.0)


def test_every_setting_of_the_store_can_be_set_on_the_broker() -> None:
    given = {field.name: getattr(StoreSettings(), field.name) + 1 for field in dataclasses.fields(StoreSettings)}
    assert BrokerSettings(**given).store() == StoreSettings(**given)


@pytest.mark.parametrize("exposed", [{"host": "0.0.0.0"}, {"status_host": "10.0.0.5", "status_port": 0}])
def test_other_machines_are_let_in_only_where_it_is_said(exposed: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="set insecure = true"):
        BrokerSettings(**exposed)
    assert BrokerSettings(**exposed, insecure=True).insecure
