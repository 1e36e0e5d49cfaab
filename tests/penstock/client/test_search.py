"""What a search asks, and what it makes of an answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.client.search import found_in, search_of
from penstock.errors import InvalidRequest, InvalidTopic
from penstock.protocol.message import ENTRY, FRAME_HEAD_BYTES, Message, encode_message
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.messages import FindByKey, Pulled


def test_a_search_is_of_a_topic_a_key_and_a_time() -> None:
    assert search_of("orders", "k", 5, None) == FindByKey("orders", "k", 5)
    assert search_of("température", b"k", 0, datetime.fromtimestamp(9, UTC)) == FindByKey(
        "temp%C3%A9rature", "k", 0, 9000
    )


@pytest.mark.parametrize("key", ["", b"", None, 7])
def test_what_is_no_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidRequest, match="at least one character"):
        search_of("orders", key, 0, None)


def test_what_is_no_topic_and_no_time_is_refused() -> None:
    with pytest.raises(InvalidTopic):
        search_of("a/b", "k", 0, None)
    with pytest.raises(InvalidRequest, match="since is a datetime"):
        search_of("a", "k", 1.5, None)  # type: ignore[arg-type]


def test_what_is_found_is_in_queues_of_the_broker_that_found_it() -> None:
    record = encode_message(Message("orders", b"x"), queue_id=3)
    page = Pulled(1, 0, 0, 0, ENTRY.pack(0, 0, FRAME_HEAD_BYTES + len(record), 0) + bytes(FRAME_HEAD_BYTES) + record)
    assert [(one.queue, one.body) for one in found_in(page, "b")] == [(MessageQueue("b", "orders", 3), b"x")]
