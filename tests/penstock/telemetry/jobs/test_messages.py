"""Rows as messages: their JSON, their key, and topic names that are legal whatever a device is called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import InvalidConfig
from penstock.telemetry.jobs.messages import COLUMNS, messages


def test_a_row_becomes_a_message_whose_topic_name_is_legal(frame: Any, made: Any) -> None:
    row = made(1)[0] | {"device": "a/+#b", "metric": "in/temp+", "value": 99.5, "error": None}
    found = messages(frame([row]).select("device", "metric", "value"), "alerts/{device}/now/{metric}")
    assert tuple(found.columns) == COLUMNS
    (message,) = found.collect()
    assert (message.mqtt_topic, message.key) == ("alerts/a___b/now/in/temp_", "a/+#b")
    assert json.loads(message.value) == {"device": "a/+#b", "metric": "in/temp+", "value": 99.5}
    with pytest.raises(InvalidConfig, match=r"no \{site\}"):
        messages(frame([row]), "alerts/{site}")
