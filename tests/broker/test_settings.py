from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from broker.settings import BrokerSettings
from broker.store.settings import StoreSettings
from penstock.errors import InvalidConfig


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a b"},
        {"port": 70_000},
        {"default_level": "quorum"},
        {"default_queues": 0},
        {"default_queues": 5, "queues_max": 4},
        {"queues_max": 1 << 17},
        {"segment_bytes": 100},
        {"lease_s": 0.0},
        {"owner_lease_s": 0.0},
        {"pull_bytes_max": 0},
        {"filters_max": -1},
        {"sessions_bytes_max": 0},
        {"flush_after_s": -1.0},
        {"quick_sync_s": -0.1},
        {"fresh_bytes": -1},
        {"emergency_bytes": -1},
        {"retention_s": -5.0},
        {"retention_bytes": -7},
        {"seal_after_s": -0.1},
    ],
)
def test_a_value_outside_its_limits_is_refused_by_its_name(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(wrong))):
        BrokerSettings(**wrong)  # type: ignore[arg-type]


def test_every_setting_of_the_store_can_be_set_on_the_broker() -> None:
    given = {field.name: getattr(StoreSettings(), field.name) + 1 for field in dataclasses.fields(StoreSettings)}
    assert BrokerSettings(**given).store() == StoreSettings(**given)


@pytest.mark.parametrize("exposed", [{"host": "0.0.0.0"}, {"status_host": "10.0.0.5", "status_port": 0}])
def test_other_machines_are_let_in_only_where_it_is_said(exposed: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="set insecure = true"):
        BrokerSettings(**exposed)
    assert BrokerSettings(**exposed, insecure=True).insecure
