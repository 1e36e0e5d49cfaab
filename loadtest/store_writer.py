"""The victim of the soak: a process that stores numbered records as fast as it can and says which are durable.

``python -m loadtest.store_writer FOLDER`` goes on where the folder's store ends. Each line on standard output is a
number: all records before it are synced. Segments and chunks are tiny, so that rolls, chunks, checkpoints and
keyframes happen all the time.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from broker.kernel.fold import fact_record
from broker.lineage.owner import LogOwner
from broker.state import BrokerState
from broker.store.destinations import Incoming, incoming_of
from broker.store.disk import RealDisk
from broker.store.message_store import MessageStore
from broker.store.recovery import open_store
from broker.store.settings import StoreSettings
from penstock.errors import StorageFull
from penstock.protocol.message import decode_batch, encode_record
from penstock.protocol.requests.groups import QueueOffset

TOPIC = "soak"
QUEUE = f"{TOPIC}:0"
GROUP = "soak-group"
SETTINGS = StoreSettings(
    segment_bytes=512 * 1024,
    reserve_step_bytes=64 * 1024,
    emergency_bytes=64 * 1024,
    chunk_bytes=96 * 1024,
    retention_s=0.0,
    seal_after_s=0.01,
)
BATCH_MAX = 20
BODY_BYTES_MAX = 400


def open_soak(folder: Path) -> tuple[MessageStore, BrokerState]:
    """The store in a folder, recovered."""
    state = BrokerState()
    store = open_store(RealDisk(folder), SETTINGS, state, time.time_ns() // 1_000_000)
    store.ensure_queue(TOPIC, 0)
    return store, state


def body(number: int) -> bytes:
    """What record ``number`` holds: nobody can make it up or mix it up."""
    seed = blake2b(number.to_bytes(8, "big")).digest()
    return number.to_bytes(8, "big") + (seed * 8)[: seed[0] * BODY_BYTES_MAX // 255]


def record(number: int) -> Incoming:
    """Record ``number``, ready to append."""
    return incoming_of(encode_record(TOPIC.encode(), body(number), b"", queue_id=0))


def bodies(store: MessageStore, start: int) -> Iterator[tuple[int, bytes]]:
    """Offset and body of every readable record from an offset on."""
    offset, end = start, store.bounds(QUEUE).end
    while offset < end:
        pulled = store.read(QUEUE, offset, 1000, 1 << 20)
        for at, message in decode_batch(pulled.count, pulled.body):
            yield at, message.body
        offset = pulled.next


def write_for_ever(folder: Path) -> None:
    """Appends, syncs and says so, until killed."""
    store, state = open_soak(folder)
    owner = LogOwner(store, state)
    rng = random.Random()
    number = store.next_offset(QUEUE)
    while True:
        batch = [record(number + n) for n in range(rng.randint(1, BATCH_MAX))]
        if rng.random() < 0.2:
            batch.append(fact_record("%sys%offsets", state.offsets.fact(GROUP, [QueueOffset(QUEUE, number)])))
        now_ms = time.time_ns() // 1_000_000
        try:
            placed = store.append(batch, now_ms)
        except StorageFull:
            print("full", flush=True)
            return
        number = max(place.offset for place in placed) + 1
        point = store.sync_point()
        store.sync()
        store.mark_durable(point)
        store.mark_committed(point)
        store.tick(now_ms)
        owner.tick(now_ms, now_ms)
        print(number, flush=True)


if __name__ == "__main__":
    write_for_ever(Path(sys.argv[1]))
