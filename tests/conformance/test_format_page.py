"""docs/formats/mqtt.md says what the codec does."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.mqtt import codec
from gateway.mqtt.packets import Properties, Publish
from tests.conformance.wire_cases import taken

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "mqtt.md").read_text()


def test_the_worked_example_is_the_packet_that_it_says() -> None:
    lines = PAGE.partition("## Worked example")[2].partition("```")[2].partition("```")[0].strip().splitlines()
    data = bytes.fromhex("".join(line[:11] for line in lines))
    value = Publish(
        "a/é",
        b"on",
        1,
        True,
        packet_id=10,
        properties=Properties(message_expiry_interval=60, user_properties=(("k", "v"),)),
    )
    assert taken(5, data) == value
    assert codec.encode(value, 5) == data


def test_every_module_and_setting_that_the_page_names_exists() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(r"`((?:gateway|topicmap|tests)/[\w./]+)`", PAGE)
    assert len(named) >= 5
    assert [name for name in named if not (root / name).exists()] == []
    settings = (root / "gateway" / "settings.py").read_text()
    assert [name for name in re.findall(r"`(\w+_bytes_max)`", PAGE) if f"{name}:" not in settings] == []
