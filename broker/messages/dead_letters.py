"""Dead letters: messages that nothing could be done with, kept in a topic with their origin and the reason."""

from __future__ import annotations

from typing import Final

from broker.store.frames import FLAG_AT
from broker.store.records import Incoming
from broker.topics.requests import TopicRequests
from penstock.protocol.message import (
    BORN_AT,
    decode_properties,
    encode_properties,
    encode_record,
    record_body,
    record_properties,
    record_topic,
)
from topicmap.queues import dead_letter_topic

ORIGIN: Final = "ORIGIN_TOPIC"
REASON: Final = "REASON"
REASON_BYTES_MAX: Final = 1_024


class DeadLetters:
    """Makes dead letters, and the topics that they go to."""

    def __init__(self, topics: TopicRequests) -> None:
        self._topics = topics

    def letter(self, group: str, record: bytes, reason: str, now_ms: int, **origin: str) -> Incoming:
        """The dead letter of a message, ready to append: the message in the dead-letter topic of a group, with what is
        said of its ``origin``."""
        topic = dead_letter_topic(group)
        self._topics.ensure_own(topic, now_ms)
        properties = decode_properties(record_properties(record))
        properties.setdefault(ORIGIN, record_topic(record).decode("utf-8", "replace"))
        properties |= origin | {REASON: _short(reason)}
        raw = encode_properties(properties)
        flag = int.from_bytes(record[FLAG_AT : FLAG_AT + 4], "big") & 0b11  # it is neither retained nor of an exchange
        born_ms = int.from_bytes(record[BORN_AT : BORN_AT + 8], "big")
        letter = encode_record(topic.encode(), record_body(record), raw, queue_id=0, flag=flag, born_ms=born_ms)
        return Incoming(letter, topic, 0, flag, raw, self._topics.level_of(topic))


def _short(reason: str) -> str:
    text = reason.replace("\x01", " ").replace("\x02", " ")
    return text.encode("utf-8", "replace")[:REASON_BYTES_MAX].decode("utf-8", "ignore")
