"""Consumers beside the ordinary one: one that pops, and a handler that gives every tenth message back. What counts is
their rate as a part of that of the ordinary way, which the same process measures just before."""

from __future__ import annotations

from typing import Final

import anyio

from loadtest.native.backlog import store
from loadtest.native.orders import Bodies, Meter, Order, Outcome
from penstock import Consumer, PopConsumer, ReceivedMessage, Retry

PATIENCE_S: Final = 20.0
COMMIT_EVERY: Final = 20
GIVEN_BACK: Final = 10
"""One message in this number is given back, once."""
CONCURRENCY: Final = 100


async def pop(order: Order) -> Outcome:
    """A backlog that is consumed, and then popped with an acknowledgement of each batch."""
    await store(order)
    plain, popped = await _consume(order), await _pop(order)
    popped.figures = {"share": popped.rate / plain.rate}
    return popped


async def give_back(order: Order) -> Outcome:
    """A backlog that a handler works off, and then one that gives messages back."""
    await store(order)
    plain, retried = await _handle(order, "plain", 0), await _handle(order, "retried", GIVEN_BACK)
    retried.figures = {"share": retried.rate / plain.rate}
    return retried


async def _consume(order: Order) -> Outcome:
    meter, bodies, batches = Meter(order), list[bytes](), 0
    first = meter.look(0)
    with anyio.move_on_after(PATIENCE_S + 10 * order.measure_s):
        async with Consumer(f"{order.group}-plain", order.topic, servers=order.servers, start="earliest") as consumer:
            async for batch in consumer:
                bodies += [message.body for message in batch]
                batches += 1
                if batches % COMMIT_EVERY == 0 or len(bodies) >= order.messages:
                    await consumer.commit()
                if len(bodies) >= order.messages:
                    break
            last = meter.look(len(bodies))
    return _checked(order, bodies, first.until(last))


async def _pop(order: Order) -> Outcome:
    meter, bodies = Meter(order), list[bytes]()
    first = meter.look(0)
    with anyio.move_on_after(PATIENCE_S + 10 * order.measure_s):
        async with PopConsumer(f"{order.group}-pop", order.topic, servers=order.servers, start="earliest") as consumer:
            async with anyio.create_task_group() as acks:
                async for batch in consumer:
                    bodies += [message.body for message in batch]
                    acks.start_soon(consumer.ack, batch)
                    if len(bodies) >= order.messages:
                        break
            last = meter.look(len(bodies))
    return _checked(order, bodies, first.until(last))


async def _handle(order: Order, name: str, given_back: int) -> Outcome:
    meter, bodies = Meter(order), list[bytes]()
    first = meter.look(0)
    with anyio.move_on_after(PATIENCE_S + 10 * order.measure_s):
        async with Consumer(f"{order.group}-{name}", order.topic, servers=order.servers, start="earliest") as consumer:

            async def work(message: ReceivedMessage) -> None:
                if given_back and not message.attempts and Bodies.number(message.body) % given_back == 0:
                    raise Retry(0)
                bodies.append(message.body)
                if len(bodies) >= order.messages:
                    consumer.stop()

            await consumer.handle(work, concurrency=CONCURRENCY, messages_max=10_000, span_max=100_000)
            last = meter.look(len(bodies))
    return _checked(order, bodies, first.until(last))


def _checked(order: Order, bodies: list[bytes], outcome: Outcome) -> Outcome:
    outcome.checked = Bodies(order.body_bytes).check(bodies, order.messages)
    return outcome
