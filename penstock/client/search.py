"""A search for messages: its requests to each broker, and the joining of the answers. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from penstock.client.arguments import check_text, time_ms
from penstock.errors import InvalidRequest
from penstock.protocol.message import decode_batch, stored_key
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.messages import FindByKey, Pulled
from penstock.protocol.topic_names import topic_of


def search_of(topic: str, key: str | bytes, since: datetime | int, until: datetime | int | None) -> FindByKey:
    """The request for a broker's newest messages. Raises ``InvalidRequest`` and ``InvalidTopic``."""
    check_text("topic", topic)
    if not isinstance(key, str | bytes) or not key:
        raise InvalidRequest(f"a key is a str or bytes with at least one character, not {key!r}")
    request = FindByKey(topic_of(topic), stored_key(key)[1], time_ms("since", since))
    return request if until is None else replace(request, until_ms=time_ms("until", until))


def found_in(page: Pulled, broker: str) -> list[ReceivedMessage]:
    """The messages of an answer, newest first, with the queues of the broker that gave it."""
    messages = [message for _, message in decode_batch(page.count, page.body)]
    for message in messages:
        message.queue = message.queue._replace(broker=broker)
    return messages
