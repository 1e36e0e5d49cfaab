"""Stores what consumers are to read, if it is not there yet."""

from __future__ import annotations

from typing import Final

from loadtest.native.orders import Bodies, Order
from loadtest.native.scenarios import PROPERTIES
from penstock import Message, Producer, Reader

STORE_BATCH: Final = 500


async def store(order: Order) -> None:
    """Stores an order's messages, the queues' one after the other as the broker gives them out."""
    async with Reader(order.topic, servers=order.servers) as reader:
        if sum(bounds.end for bounds in (await reader.bounds()).values()) >= order.messages:
            return
    make, properties = Bodies(order.body_bytes).make, PROPERTIES if order.filter else {}
    async with Producer(servers=order.servers) as producer:
        for start in range(0, order.messages, STORE_BATCH):
            numbers = range(start, min(start + STORE_BATCH, order.messages))
            await producer.send_many([Message(order.topic, make(one), properties=properties) for one in numbers])
