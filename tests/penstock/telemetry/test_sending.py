"""Messages out of rows, against a real broker and rows that need no Spark."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.blocking import Reader
from penstock.telemetry import sending
from penstock.telemetry.sending import Messages


class Rows:
    """Rows that are messages already."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._rows = rows

    def toLocalIterator(self) -> Any:
        return iter(self._rows)


@pytest.mark.parametrize("to_devices", [True, False])
def test_each_row_is_sent_under_its_name_and_key(
    real_cluster: Any, monkeypatch: pytest.MonkeyPatch, to_devices: bool
) -> None:
    monkeypatch.setattr(sending, "messages", lambda rows, pattern: rows)
    monkeypatch.setattr(sending, "SENT_AT_ONCE", 2)
    topic = f"out{to_devices}".lower()
    rows: Any = Rows(
        *[{"mqtt_topic": f"{topic}/d{at}", "key": f"d{at}" if at else None, "value": b"%d" % at} for at in range(5)]
    )
    Messages(f"{topic}/{{device}}" if to_devices else topic, real_cluster.servers, to_devices=to_devices).write(rows, 0)
    with Reader(topic, servers=real_cluster.servers, until_end=True) as reader:
        found = {(one.mqtt_topic, one.key, one.body) for one in reader.messages()}
    assert len(found) == 5
    assert ((f"{topic}/d3" if to_devices else ""), "d3", b"3") in found
