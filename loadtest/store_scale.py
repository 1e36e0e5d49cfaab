"""What the store costs when there is much of it: 100,000 light queues, a large unsealed log, a large sealed one.

``python -m loadtest store --long`` runs each row in a process of its own. The logs are written by the real writer. A
row's figure is one run: memory does not vary, and the goals of recoveries are seconds of the wall clock.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from broker.filters import fold as filters
from broker.kernel.fold import fact_record
from broker.lineage.owner import LogOwner
from broker.state import BrokerState
from broker.store.destinations import Incoming, incoming_of
from broker.store.disk import RealDisk
from broker.store.message_store import MessageStore
from broker.store.recovery import open_store
from broker.store.settings import StoreSettings
from loadtest.store_bench import NoFolds, Row, device_batch, in_turns
from penstock.protocol.message import encode_properties, encode_record
from penstock.service.memory import settle

QUEUES: Final = 100_000
FILTERS_PER_RECORD: Final = 5_000
GIB: Final = 1 << 30
SETTINGS: Final = StoreSettings(retention_s=0.0)
UNSEALED: Final = StoreSettings(retention_s=0.0, chunk_bytes=1 << 40, segment_bytes=2 * GIB)


def rss_mb() -> float:
    """Memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def sync(store: MessageStore) -> None:
    point = store.sync_point()
    store.sync()
    store.mark_durable(point)
    store.mark_committed(point)
    store.take_readable()


def device(number: int) -> Incoming:
    """A message for the light queue of one device."""
    properties = encode_properties({"MQTT_TOPIC": f"devices/d{number}/cmd"})
    return incoming_of(encode_record(b"devices", b"x" * 64, properties, queue_id=0, flag=1))


def open_filters(store: MessageStore, names: Iterator[str]) -> None:
    while some := [name for name, _ in zip(names, range(FILTERS_PER_RECORD), strict=False)]:
        store.append([fact_record(filters.TOPIC, filters.Filters.fact(filters.OPEN, "g", some))], 1)


def until_sealed(store: MessageStore) -> list[float]:
    """Seals everything; how much processor time each tick took."""
    sync(store)
    store._sealing.plan(store.written)
    owner, ticks = LogOwner(store, store._folds), []
    while store._sealing._plans:
        began = time.process_time()
        store.tick(1)
        owner.tick(1, 1)
        ticks.append(time.process_time() - began)
        sync(store)
    return ticks


def full_collection_s() -> float:
    """Processor time that a full collection of garbage holds the loop: the best of three, without garbage to free."""
    took = []
    for _ in range(3):
        began = time.process_time()
        gc.collect()
        took.append(time.process_time() - began)
    return min(took)


def light_queues(folder: Path) -> list[Row]:
    """Memory, sealing and restart with 100,000 light queues, each with a message."""
    store = open_store(RealDisk(folder), SETTINGS, BrokerState(), 1)
    empty = rss_mb()
    open_filters(store, (f"devices/d{number}/cmd" for number in range(QUEUES)))
    idle = rss_mb() - empty
    for start in range(0, QUEUES, 100):
        store.append([device(number) for number in range(start, start + 100)], 1)
    sync(store)
    began = time.process_time()
    store._sealing.plan(store.written)
    planned = time.process_time() - began
    ticks = until_sealed(store)
    sealed = rss_mb() - empty
    store.close(1)
    del store
    gc.collect()
    began = time.perf_counter()
    again = open_store(RealDisk(folder), SETTINGS, BrokerState(), 1)
    restart_s = time.perf_counter() - began
    looked_at_s = full_collection_s()
    settle()
    settled_s = full_collection_s()
    gc.unfreeze()
    again.close(1)
    longest = max([planned, *ticks])
    return [
        Row(f"{QUEUES:,} light queues, idle", f"{idle:.0f} MB beyond an empty broker", "<= 60 MB", idle <= 60),
        Row("the same, each with a sealed message", f"{sealed:.0f} MB", "<= 60 MB", sealed <= 60),
        Row("the same, restart", f"{restart_s:.1f} s", "< 5 s", restart_s < 5),
        Row(
            "the same, a full collection of garbage",
            f"{settled_s * 1e3:.1f} ms once settled, {looked_at_s * 1e3:.0f} ms before",
            "<= 5 ms",
            settled_s <= 0.005,
        ),
        Row(
            "the same, checkpoint",
            f"loop held {longest * 1e3:.0f} ms at most, over {len(ticks)} ticks",
            "no tick over 20 ms",
            longest <= 0.02,
        ),
    ]


def flat_matching(folder: Path) -> list[Row]:
    """An append with 10 and with 100,000 open filters that do not match it."""
    stores = []
    for count in (10, QUEUES):
        store = open_store(RealDisk(folder / str(count)), SETTINGS, BrokerState(), 1)
        open_filters(store, (f"other/d{number}/+" for number in range(count)))
        stores.append(store)
    batch = [device(number) for number in range(100)]
    few, many = in_turns(*[lambda store=store: [store.append(batch, 1) for _ in range(10)] for store in stores])
    for store in stores:
        store.close(1)
    figure = f"{many / 1000 * 1e6:.2f} us a message against {few / 1000 * 1e6:.2f} us with 10"
    return [Row(f"append with {QUEUES:,} queues that do not match", figure, "flat (<= 1.2x)", many <= few * 1.2)]


def fill(folder: Path, settings: StoreSettings, size: int, body_bytes: int) -> None:
    """A log of about ``size`` bytes, left as after kill -9 (but sealed as far as it goes)."""
    store = open_store(RealDisk(folder), settings, NoFolds(), 1)
    owner, batch = LogOwner(store, store._folds), device_batch(100, body_bytes) * 4
    while store.written < size:
        store.append(batch, 1)
        if store.written - store.durable > 32 << 20:
            sync(store)
            store.tick(1)
            owner.tick(1, 1)
    sync(store)
    store._log.close()
    store._chunks.close_all()
    store._disk.unlock()


def recovered_s(folder: Path, settings: StoreSettings) -> float:
    began = time.perf_counter()
    open_store(RealDisk(folder), settings, NoFolds(), 1)
    return time.perf_counter() - began


def unsealed(folder: Path) -> list[Row]:
    """Recovery of 1 GiB that is in no chunk."""
    fill(folder, UNSEALED, GIB, 256)
    took_s = recovered_s(folder, UNSEALED)
    return [Row("recovery of 1 GiB unsealed, 256 B", f"{took_s:.1f} s", "< 15 s", took_s < 15)]


def sealed(folder: Path) -> list[Row]:
    """Recovery of 10 GiB in chunks."""
    fill(folder, SETTINGS, 10 * GIB, 1024)
    took_s = recovered_s(folder, SETTINGS)
    return [Row("recovery of 10 GiB sealed, 1024 B", f"{took_s:.2f} s", "< 2 s", took_s < 2)]


PARTS: Final[tuple[Callable[[Path], list[Row]], ...]] = (light_queues, flat_matching, unsealed, sealed)


def run(tell: Callable[[str], None]) -> list[Row]:
    """Measures all rows, each part in a process of its own."""
    rows: list[Row] = []
    for part in PARTS:
        tell(f"{part.__name__.replace('_', ' ')}: {part.__doc__}")
        ended = subprocess.run(
            [sys.executable, "-m", "loadtest.store_scale", part.__name__], stdout=subprocess.PIPE, text=True, check=True
        )
        rows += [Row(*row) for row in json.loads(ended.stdout)]
    return rows


def main(name: str) -> None:
    """One part; its rows as JSON on standard output."""
    part = next(part for part in PARTS if part.__name__ == name)
    with tempfile.TemporaryDirectory(prefix="penstock-scale-") as folder:
        json.dump(part(Path(folder) / "data"), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
