"""Retries and dead letters: what the broker stores of messages that a consumer group could not work off.

A retry goes to the retry topic of its group, a dead letter to its dead-letter topic. Both keep body, key, tag and
properties, and say where they come from and why. Neither is seen by devices: the MQTT name becomes ``ORIGIN_NAME``.
"""

from __future__ import annotations

from typing import Final

from broker.store.destinations import Destination, Incoming, incoming_of
from broker.store.frames import FLAG_AT
from broker.topics.requests import TopicRequests
from penstock.protocol.compression import SYSTEM_FLAG_AT
from penstock.protocol.message import (
    ATTEMPTS_AT,
    BORN_AT,
    FLAG_QOS,
    HALF,
    MQTT_TOPIC,
    PROPERTIES_BYTES_MAX,
    TIMER,
    decode_properties,
    encode_properties,
    record_body,
    record_properties,
    record_tail,
    record_topic,
)
from penstock.protocol.properties import GIVEN_BACK, ORIGIN_NAME, ORIGIN_TOPIC, REASON
from penstock.protocol.runs import UNUSUAL, Run
from topicmap.queues import dead_letter_topic, is_own_topic, retry_topic

REASON_BYTES_MAX: Final = 1_024
_NO_HOST: Final = bytes(8)
_SLEPT: Final = (TIMER, HALF, GIVEN_BACK)
"""Properties of the message's own past, which are not true of its retry or dead letter."""
_MARKS: Final = tuple([name.encode() for name in (*_SLEPT, MQTT_TOPIC, "ORIGIN_", REASON)])


class DeadLetters:
    """Makes retries and dead letters, and the topics that they go to."""

    def __init__(self, topics: TopicRequests) -> None:
        self._topics = topics

    def letter(self, group: str, record: bytes, reason: str, now_ms: int, attempts: int, **origin: str) -> Incoming:
        """The dead letter of a message, ready to append, after ``attempts`` attempts. ``origin``: further properties
        that say where it comes from."""
        return self._redirected(dead_letter_topic(group), record, attempts, reason, now_ms, origin)

    def retry(self, group: str, record: bytes, reason: str, now_ms: int, attempts: int, **origin: str) -> Incoming:
        """The message for another attempt of a group, after ``attempts`` attempts."""
        return self._redirected(retry_topic(group), record, attempts, reason, now_ms, origin)

    def as_stored(self, record: bytes, now_ms: int) -> Incoming | None:
        """A retry that was made before, ready to append; ``None`` for any other message. Its topic may have been
        deleted meanwhile."""
        topic = record_topic(record).decode("utf-8", "replace")
        if not is_own_topic(topic):
            return None
        self._topics.ensure_own(topic, now_ms)
        stored = incoming_of(record, self._topics.level_of(topic))
        stored.run.queue_id = 0
        return stored

    def _redirected(
        self, topic: str, record: bytes, attempts: int, reason: str, now_ms: int, origin: dict[str, str]
    ) -> Incoming:
        self._topics.ensure_own(topic, now_ms)
        raw = _redirected_properties(record, origin, _short(reason))
        flag = int.from_bytes(record[FLAG_AT : FLAG_AT + 4], "big") & FLAG_QOS  # neither retained nor of an exchange
        born_ms = int.from_bytes(record[BORN_AT : BORN_AT + 8], "big")
        run = Run(record_tail(topic.encode(), raw), flag, born_ms, [record_body(record)])
        system_flag = int.from_bytes(record[SYSTEM_FLAG_AT : SYSTEM_FLAG_AT + 4], "big")  # how the body is compressed
        run.queue_id, run.unusual = 0, UNUSUAL.pack(system_flag, _NO_HOST, attempts, 0)
        return Incoming(run, Destination(topic, raw, self._topics.level_of(topic)))


def _redirected_properties(record: bytes, origin: dict[str, str], reason: str) -> bytes:
    """The properties of a record without those of its sleep, with its reason, and with those of ``origin`` that it
    lacks."""
    given = record_properties(record)
    origin = {ORIGIN_TOPIC: record_topic(record).decode("utf-8", "replace")} | origin
    if not any([mark in given for mark in _MARKS]):  # it is in its first topic, and was seen by no device
        pairs = [f"{name}\x01{value}".encode() for name, value in (*origin.items(), (REASON, reason))]
        raw = b"\x02".join([given.rstrip(b"\x02"), *pairs] if given else pairs)
        if len(raw) <= PROPERTIES_BYTES_MAX:
            return raw
    properties = decode_properties(given)
    for slept in _SLEPT:
        properties.pop(slept, None)
    name = properties.pop(MQTT_TOPIC, "")
    if name:
        properties.setdefault(ORIGIN_NAME, name)
    for key, value in origin.items():
        properties.setdefault(key, value)
    properties[REASON] = reason
    return encode_properties(properties)


def attempts_of(record: bytes) -> int:
    """How often a message was tried before."""
    return int.from_bytes(record[ATTEMPTS_AT : ATTEMPTS_AT + 4], "big")


def _short(reason: str) -> str:
    text = reason.replace("\x01", " ").replace("\x02", " ")
    return text.encode("utf-8", "replace")[:REASON_BYTES_MAX].decode("utf-8", "ignore")
