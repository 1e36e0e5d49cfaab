"""The property string of a record: names that mean something to Penstock, and how it is read. Pure."""

from __future__ import annotations

from base64 import b64decode
from typing import Final

from penstock.errors import InvalidMessage

MQTT_PROPERTIES: Final = "MQTT_PROPS"
MQTT_TOPIC: Final = "MQTT_TOPIC"
KEYS: Final = "KEYS"
KEYS_BASE64: Final = "KEYS_BASE64"
"""In place of ``KEYS``, a key that is no text for a property: base64."""
SHARDING_KEY: Final = "__SHARDINGKEY"
"""Chooses the queue in place of the key (RocketMQ's name)."""
TAGS: Final = "TAGS"
UNIQUE_KEY: Final = "UNIQ_KEY"
ORIGIN_TOPIC: Final = "ORIGIN_TOPIC"
"""Of a retry and a dead letter: the topic that it was in first."""
ORIGIN_NAME: Final = "ORIGIN_NAME"
"""The MQTT topic name that it had there."""
REASON: Final = "REASON"
"""The reason why it was given back."""
GIVEN_BACK: Final = "GIVEN_BACK"
"""Which message of a group's queue it was just before (docs/formats/facts.md)."""


def decode_properties(raw: bytes) -> dict[str, str]:
    """Names and values of a property string; a trailing 0x02 is tolerated, as old RocketMQ clients send one."""
    if not raw:
        return {}
    try:
        pairs = [pair.split("\x01") for pair in raw.decode().split("\x02") if pair]
        return dict(pairs)  # a pair of another length is the ValueError below
    except (UnicodeDecodeError, ValueError):
        raise InvalidMessage("the property string is damaged") from None


def read_key(value: str | bytes) -> str | bytes:
    """The key that a value of ``KEYS_BASE64`` holds, as text if it is UTF-8; empty if the value is not base64."""
    try:
        key = b64decode(value, validate=True)
    except ValueError:
        return ""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
