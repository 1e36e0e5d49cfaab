"""The consumer's process of a pipe: ``python -m loadtest.native.taker``.

It reads an order as a line of JSON, joins the group, says ``ready``, and takes messages until it has as many as the
second line says. Then it checks all of them and prints when how many had come, and what they cost.
"""

from __future__ import annotations

import json
import select
import sys
import time
from typing import Any, Final

import anyio

from loadtest.native.orders import Bodies, Order
from loadtest.native.worker import COMMIT_EVERY, PATIENCE_S, first_of
from loadtest.wires import Failed
from penstock import Consumer, PenstockError

LISTEN_S: Final = 0.05
"""So often it looks whether it is told how many messages there are."""


class Taking:
    """A group consumer that notes what comes, and when."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._bodies: list[bytes] = []
        self._wanted = -1
        self._marks: list[tuple[float, int]] = []
        self._cpu_s = 0.0

    async def run(self) -> dict[str, Any]:
        """Says ``ready`` and takes all messages. Raises ``Failed`` if they do not come, or are not what was sent."""
        order = self._order
        async with Consumer(order.group, order.topic, servers=order.servers, start="earliest") as consumer:
            print("ready", flush=True)
            before = time.process_time()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._take, consumer)
                tasks.start_soon(self._listen, tasks.cancel_scope)
            await consumer.commit()
            self._cpu_s = time.process_time() - before
        Bodies(order.body_bytes).check(self._bodies, self._wanted)
        return {"error": "", "marks": self._marks, "cpu_s": self._cpu_s}

    async def _take(self, consumer: Consumer) -> None:
        batches = 0
        async for batch in consumer:
            self._bodies += [message.body for message in batch]
            self._marks.append((time.perf_counter(), len(self._bodies)))
            batches += 1
            if batches % COMMIT_EVERY == 0:
                await consumer.commit()

    async def _listen(self, all_tasks: anyio.CancelScope) -> None:
        """Ends all tasks when every message is there. Raises ``Failed`` when none has come for a while."""
        seen, until = -1, 0.0
        while not 0 <= self._wanted <= len(self._bodies):
            if self._wanted < 0 and select.select([sys.stdin], [], [], 0)[0]:
                self._wanted = int(sys.stdin.readline())
            if len(self._bodies) != seen:
                seen, until = len(self._bodies), time.perf_counter() + PATIENCE_S
            elif time.perf_counter() > until:
                raise Failed(f"{seen} messages came of {self._wanted}")
            await anyio.sleep(LISTEN_S)
        all_tasks.cancel()


def main() -> None:
    """Reads an order, takes its messages, prints what came."""
    order = Order(**json.loads(sys.stdin.readline()))
    try:
        told = anyio.run(Taking(order).run, backend=order.loop)
    except* (Failed, PenstockError, OSError) as errors:
        told = {"error": first_of(errors)}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
