from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest
import trio

from penstock import Producer, blocking
from penstock.client.devices import device_message
from penstock.errors import InvalidMessage, InvalidRequest
from penstock.protocol.message import Message


def test_a_message_for_a_device_has_its_name_and_its_key() -> None:
    assert device_message("d7", b"on") == Message("", b"on", "d7", mqtt_topic="$p2p/d7")
    other = device_message("d 7", b"on", key="order-1", tag="t", properties={"p": "v"}, qos=2)
    assert other == Message("", b"on", "order-1", "t", {"p": "v"}, "$p2p/d 7", 2)


@pytest.mark.parametrize("client_id", ["", "a/b", "+", "a#", "a\nb", 7, "x" * 65_536])
def test_a_client_id_that_is_no_level_of_a_name_is_refused(client_id: Any) -> None:
    with pytest.raises(InvalidRequest, match="client"):
        device_message(client_id, b"on")


def test_another_argument_of_a_wrong_type_is_named() -> None:
    async def send() -> None:
        async with Producer(servers="127.0.0.1:1") as producer:
            await producer.send_to_device("d7", "on")  # type: ignore[arg-type]

    with pytest.raises(InvalidMessage, match="body must be bytes"):
        trio.run(send)


def test_it_is_stored_at_once_or_later_in_one_queue_for_each_device(run: Callable[..., Any], real_cluster: Any) -> None:
    async def send() -> None:
        async with Producer(servers=real_cluster.servers) as producer:
            first = await producer.send_to_device("d7", b"1")
            second = await producer.send_to_device("d7", b"2", properties={"p": "v"}, qos=2)
            later = await producer.send_to_device("d7", b"3", delay=0.05)
            assert (first.queue, first.offset + 1) == (second.queue, second.offset)
            assert later.due_ms

    run(send)
    with blocking.Producer(servers=real_cluster.servers) as producer:
        assert producer.send_to_device("d7", b"4").topic == "%24p2p"
        producer.send_to_device("d7", b"5", at=datetime.now(UTC))
    with blocking.Reader("$p2p", servers=real_cluster.servers, start="earliest") as reader:
        seen = list(islice(reader.messages(), 5))
    assert sorted(message.body for message in seen) == [b"1", b"2", b"3", b"4", b"5"]
    assert {(message.mqtt_topic, message.key) for message in seen} == {("$p2p/d7", "d7")}
