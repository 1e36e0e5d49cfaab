"""A client's process: ``python -m loadtest.native.worker`` reads an order as JSON from standard input, carries it out
with ``penstock``'s client and prints the outcome as JSON.

It is a program as a user writes it, in plain Python, with the garbage collector at work. What it takes to make messages
and to read their bodies is part of what a message costs. Everything that was sent is read back after the measured time.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from typing import Any, Final

import anyio

from loadtest.cores import pin
from loadtest.native.backlog import store
from loadtest.native.leased import give_back, pop
from loadtest.native.orders import Bodies, Meter, Order, Outcome
from loadtest.native.rebalancing import rebalance
from loadtest.native.scenarios import CONSUME, PIPE, POP, REBALANCE, RETRY, SEND, TIMERS, TRACED, TRANSACT
from loadtest.native.timed import fire
from loadtest.wires import Failed
from penstock import Admin, Consumer, Message, PenstockError, Producer, Reader

COMMIT_EVERY: Final = 20
"""A consumer commits after so many batches."""
PATIENCE_S: Final = 20.0
"""No message for so long: it will not come."""


class Sending:
    """A producer of which several tasks send, each with one ``send`` or ``send_many`` on its way."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._bodies = Bodies(order.body_bytes)
        self._numbers = itertools.count()
        self.meter = Meter(order)
        self.sent = 0
        """Messages with a receipt."""

    async def run(self, *, in_transactions: bool = False) -> None:
        """Sends until the measured time is over and all receipts are there."""
        task = self._transact if in_transactions else self._send if self._order.batch == 1 else self._send_many
        async with (
            Producer(servers=self._order.servers, group=self._order.group) as producer,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(self._order.tasks):
                tasks.start_soon(task, producer)

    async def _send(self, producer: Producer) -> None:
        topic, make, numbers = self._order.topic, self._bodies.make, self._numbers
        while self.meter.goes_on(self.sent):
            await producer.send(topic, make(next(numbers)))
            self.sent += 1

    async def _send_many(self, producer: Producer) -> None:
        topic, make, count = self._order.topic, self._bodies.make, self._order.batch
        while self.meter.goes_on(self.sent):
            numbers = itertools.islice(self._numbers, count)
            receipts = await producer.send_many([Message(topic, make(number)) for number in numbers])
            self.sent += len(receipts)

    async def _transact(self, producer: Producer) -> None:
        topic, make, count = self._order.topic, self._bodies.make, self._order.batch
        while self.meter.goes_on(self.sent):
            numbers = itertools.islice(self._numbers, count)
            async with producer.transaction([Message(topic, make(number)) for number in numbers]):
                pass
            self.sent += count


async def transact(order: Order) -> Outcome:
    """Sends, sends in transactions, and reads all of it back. What is seen is seen of the transactions."""
    sending = Sending(order)
    await sending.run()
    plain = sending.meter.outcome()
    sending.meter = Meter(order)
    await sending.run(in_transactions=True)
    outcome = sending.meter.outcome()
    outcome.figures = {"to_plain": outcome.rate / plain.rate}
    outcome.checked = await read_back(order, sending.sent)
    return outcome


async def send(order: Order) -> Outcome:
    """Sends, and reads all of it back."""
    sending = Sending(order)
    await sending.run()
    outcome = sending.meter.outcome()
    outcome.checked = await read_back(order, sending.sent)
    return outcome


async def traced(order: Order) -> Outcome:
    """Sends without a trace, with one, and without one again: the rate with it, in parts of the mean of the others."""
    outcomes = []
    for number, every in enumerate((0, 1, 0)):
        part = replace(order, topic=f"{order.topic}-{number}")
        async with Admin(order.servers) as admin:
            await admin.create_topic(part.topic, trace_every=every)
        outcomes.append(await send(part))
    before, outcome, after = outcomes
    outcome.figures = {"kept": 2 * outcome.rate / (before.rate + after.rate)}
    return outcome


async def read_back(order: Order, count: int) -> int:
    """Reads the whole topic. Raises ``Failed`` unless each message is there once."""
    async with Reader(order.topic, servers=order.servers, until_end=True) as reader:
        bodies = [message.body async for batch in reader for message in batch]
    return Bodies(order.body_bytes).check(bodies, count)


async def consume(order: Order) -> Outcome:
    """Reads a backlog as a group of its own."""
    await store(order)
    meter, bodies, batches = Meter(order), list[bytes](), 0
    first = meter.look(0)
    with anyio.move_on_after(PATIENCE_S + 10 * order.measure_s):
        named: dict[str, Any] = {"servers": order.servers, "start": "earliest", "filter": order.filter}
        async with Consumer(order.group, order.topic, **named) as consumer:
            async for batch in consumer:
                bodies += [message.body for message in batch]
                batches += 1
                if batches % COMMIT_EVERY == 0 or len(bodies) >= order.messages:
                    await consumer.commit()
                if len(bodies) >= order.messages:
                    break
            last = meter.look(len(bodies))
    checked = Bodies(order.body_bytes).check(bodies, order.messages)
    outcome = first.until(last)
    outcome.checked = checked
    return outcome


def pipe(order: Order) -> Outcome:
    """Sends while another process consumes; what counts is what came there, from when the window begins until the last
    message is there."""
    command = [sys.executable, "-m", "loadtest.native.taker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as taker:
        assert taker.stdin is not None
        assert taker.stdout is not None
        try:
            print(json.dumps(asdict(order)), file=taker.stdin, flush=True)
            if (said := taker.stdout.readline()) != "ready\n":
                raise Failed(f"the consumer did not begin: {said.strip()}")
            sending = Sending(order)
            anyio.run(sending.run, backend=order.loop)
            print(sending.sent, file=taker.stdin, flush=True)
            told = taker.stdout.readline()
        finally:
            taker.kill()
    return _passed(sending, json.loads(told or "{}"))


def _passed(sending: Sending, taken: dict[str, Any]) -> Outcome:
    """What went through. Raises ``Failed``."""
    if taken.get("error", "it ended"):
        raise Failed(f"the consumer failed: {taken.get('error')}")
    marks: list[tuple[float, int]] = taken["marks"]
    first, ended = sending.meter.first, time.perf_counter()
    before = max((count for at, count in marks if at <= first.at), default=0)
    last, count = marks[-1]
    outcome = sending.meter.outcome()
    whole = sending.meter.look(0)
    messages, seconds = count - before, last - first.at
    outcome.figures = {"producer_us": outcome.client_us, "consumer_us": taken["cpu_s"] / count * 1e6}
    outcome.messages, outcome.seconds, outcome.rate = messages, seconds, messages / seconds
    outcome.client_us = sum(outcome.figures.values())
    outcome.broker_us = (whole.broker_s - first.broker_s) / messages * 1e6
    outcome.client_busy = outcome.client_us * outcome.rate / 1e6
    outcome.broker_busy = (whole.broker_s - first.broker_s) / (ended - first.at)
    outcome.checked = count
    return outcome


KINDS: Final = {
    SEND: send,
    CONSUME: consume,
    TIMERS: fire,
    TRACED: traced,
    TRANSACT: transact,
    POP: pop,
    RETRY: give_back,
    REBALANCE: rebalance,
}


def perform(order: Order) -> Outcome:
    """Carries an order out; what goes wrong is in the outcome."""
    outcome = Outcome(error="nothing was done")
    try:
        outcome = pipe(order) if order.kind == PIPE else anyio.run(KINDS[order.kind], order, backend=order.loop)
    except* (Failed, PenstockError, OSError) as errors:
        outcome = Outcome(error=first_of(errors))
    return outcome


def first_of(errors: BaseExceptionGroup[BaseException]) -> str:
    """The first error of a group, however deep it is in there, in words."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return str(first) if isinstance(first, Failed) else f"{type(first).__name__}: {first}"


def main() -> None:
    """Reads an order, prints its outcome."""
    order = Order(**json.load(sys.stdin))
    pin(order.core)
    json.dump(asdict(perform(order)), sys.stdout)


if __name__ == "__main__":
    main()
