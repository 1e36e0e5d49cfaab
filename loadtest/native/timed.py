"""Delayed messages that fire at a steady rate, as a client sees them: when each comes to a group consumer.

They are set before the first is due. What counts are the seconds in which they fire, with all that the broker does for
it: it reads each, stores it in its topic and hands it out.
"""

from __future__ import annotations

import time
from typing import Final

import anyio

from loadtest.native.orders import Bodies, Meter, Order, Outcome
from loadtest.native.scenarios import TIMERS_PER_S
from loadtest.wires import Failed
from penstock import Consumer, Message, Producer

SET_PER_S: Final = 4_000
"""At least so many are set in a second, or the first is due before the last is set."""
COMMIT_EVERY: Final = 20
PATIENCE_S: Final = 30.0


async def fire(order: Order) -> Outcome:
    """Sets the messages, and reads them as they come. Raises ``Failed``."""
    begin_ms = _now_ms() + order.messages * 1000 // SET_PER_S + 1_000
    await _set(order, begin_ms)
    if _now_ms() > begin_ms:
        raise Failed(f"{order.messages} messages were not set at {SET_PER_S}/s")
    meter, bodies, late_ms, batches = Meter(order), list[bytes](), list[int](), 0
    with anyio.move_on_after((begin_ms - _now_ms()) / 1000 + order.messages / TIMERS_PER_S + PATIENCE_S):
        async with Consumer(order.group, order.topic, servers=order.servers, start="earliest") as consumer:
            await anyio.sleep((begin_ms - _now_ms()) / 1000)
            first = meter.look(0)
            async for batch in consumer:
                come_ms, batches = _now_ms(), batches + 1
                for message in batch:
                    bodies.append(message.body)
                    late_ms.append(come_ms - _due_ms(order, begin_ms, Bodies.number(message.body)))
                if batches % COMMIT_EVERY == 0 or len(bodies) >= order.messages:
                    await consumer.commit()
                if len(bodies) >= order.messages:
                    break
            last = meter.look(len(bodies))
    checked = Bodies(order.body_bytes).check(bodies, order.messages)
    if min(late_ms) < 0:
        raise Failed(f"a message came {-min(late_ms)} ms early")
    outcome = first.until(last)
    outcome.checked, outcome.late_s = checked, sorted(late_ms)[len(late_ms) * 99 // 100] / 1000
    return outcome


async def _set(order: Order, begin_ms: int) -> None:
    bodies = Bodies(order.body_bytes)
    async with Producer(servers=order.servers) as producer:
        for start in range(0, order.messages, order.batch):
            numbers = range(start, min(start + order.batch, order.messages))
            messages = [Message(order.topic, bodies.make(number)) for number in numbers]
            await producer.send_many(messages, at=_due_ms(order, begin_ms, start))


def _due_ms(order: Order, begin_ms: int, number: int) -> int:
    """All of a batch have one time."""
    return begin_ms + number // order.batch * order.batch * 1000 // TIMERS_PER_S


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
