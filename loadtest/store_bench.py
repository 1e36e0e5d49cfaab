"""What the store costs by itself: ``python -m loadtest.store_bench [--body 256] [--batch 100]``.

Appends batches to ``cache`` level, then reads them back, in one process on a folder of its own, and writes the same
bytes with plain ``pwrite`` calls of the same size beside it. Times are the best of many rounds, in process time: the
machine may be busy. Prints microseconds per record and the ratio to the plain calls.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from broker.store.disk import RealDisk
from broker.store.message_store import MessageStore
from broker.store.records import NO_CHANGE, Change, Incoming, Stored
from broker.store.recovery import open_store
from broker.store.settings import StoreSettings
from penstock.message import encode_properties, encode_record

ROUNDS = 60
BATCHES = 20


class NoFolds:
    """Folds that know nothing."""

    def apply(self, record: Stored) -> Change:
        return NO_CHANGE

    def queues_of(self, topic: str, properties: bytes) -> tuple[str, ...]:
        return ()

    def freeze(self) -> Iterator[bytes]:
        return iter(())

    def restore(self, snapshot: bytes) -> None:
        pass


def best_us(work: Callable[[int], Any], records: int) -> float:
    """Microseconds per record of the best round."""
    best = float("inf")
    for number in range(ROUNDS):
        began = time.process_time()
        work(number)
        best = min(best, time.process_time() - began)
    return best / records * 1e6


def device_batch(count: int, body_bytes: int) -> list[Incoming]:
    """Messages of as many devices, over 8 queues."""
    batch = []
    for number in range(count):
        properties = encode_properties({"MQTT_TOPIC": f"telemetry/d{number}/temp", "MQTT_CLIENT": f"d{number}"})
        record = encode_record(b"telemetry", bytes(body_bytes), properties)
        batch.append(Incoming(record, "telemetry", number % 8, 1, properties, True))
    return batch


def append_round(store: MessageStore, batch: list[Incoming]) -> None:
    for _ in range(BATCHES):
        store.append(batch, 1)


def plain_round(descriptor: int, blob: bytes, number: int) -> None:
    for place in range(BATCHES):
        os.pwrite(descriptor, blob, (number * BATCHES + place) * len(blob))


def read_round(store: MessageStore, queue: str) -> None:
    offset, end = 0, store.bounds(queue).end
    while offset < end:
        offset = store.read(queue, offset, 1024, 256 * 1024).next


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--body", type=int, default=256)
    parser.add_argument("--batch", type=int, default=100)
    wanted = parser.parse_args()
    batch = device_batch(wanted.batch, wanted.body)
    records = BATCHES * wanted.batch
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(RealDisk(Path(folder) / "data"), StoreSettings(), NoFolds(), 1)
        append_us = best_us(lambda number: append_round(store, batch), records)
        blob = bytes(sum(len(one.record) + 24 for one in batch))
        descriptor = os.open(Path(folder) / "plain", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(descriptor, 0, ROUNDS * BATCHES * len(blob))
        plain_us = best_us(lambda number: plain_round(descriptor, blob, number), records)
        os.close(descriptor)
        read_us = best_us(lambda number: read_round(store, "telemetry:0"), store.bounds("telemetry:0").end)
        store.close(1)
    print(f"append {append_us:.2f} us per record, plain pwrite {plain_us:.2f} us, ratio {plain_us / append_us:.0%}")
    print(f"read   {read_us:.2f} us per record")


if __name__ == "__main__":
    main()
