from __future__ import annotations

from typing import Any

import pytest

from events.settings import EventsSettings
from penstock.errors import InvalidConfig


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "0.0.0.0"},
        {"status_host": "0.0.0.0", "status_port": 0},
        {"private_targets": ("10.0.0.1/8",)},
        {"private_targets": ("localhost",)},
    ],
)
def test_a_setting_out_of_its_limits_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        EventsSettings(**wrong)


def test_other_machines_are_served_where_the_operator_says_so() -> None:
    assert EventsSettings(host="0.0.0.0", insecure=True).host == "0.0.0.0"
