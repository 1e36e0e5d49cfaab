"""What the store costs by itself, beside plain calls of the operating system: ``python -m loadtest store``.

All rows of one run are measured in one process on one folder, in turns where they are compared. Times are processor
time, best of many rounds: the machine may be busy. ``store_scale.py`` has the rows that take minutes.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio
from rich import box
from rich.console import Console
from rich.table import Table

from broker.net.flusher import Flusher
from broker.net.lead import Lead
from broker.replica.follower_log import FollowerLog
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.destinations import Destination, Incoming, incoming_of
from broker.store.disk import RealDisk
from broker.store.level import Level
from broker.store.message_store import MessageStore
from broker.store.records import NO_CHANGE, Change, Removed, Stored
from broker.store.recovery import open_store
from broker.store.settings import StoreSettings
from broker.store_clock import StoreClock
from broker.timer_clock import TimerClock
from penstock.errors import PenstockError
from penstock.guarded_clock import GuardedClock
from penstock.protocol.message import IS_COMPILED, encode_properties, encode_record, record_tail
from penstock.protocol.requests.messages import Append
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.topics import CreateTopic
from penstock.protocol.runs import Run
from penstock.world import RealClock, real_world

ROUNDS: Final = 60
BATCHES: Final = 20
BATCH: Final = 100
APPEND_BODY_BYTES: Final = 256
READ_BODY_BYTES: Final = 1024
READ_MESSAGES: Final = 20_000
READ_BYTES: Final = (256 * 1024, 1024 * 1024)
SCAN_MESSAGES: Final = 40_000
SCAN_COUNT: Final = 20_000
SCAN_GOAL_US: Final = 0.8
REPLAY_ROUNDS: Final = 40
REPLAY_DEVICES: Final = 100
REPLAY_RUN: Final = 20
PRODUCERS: Final = 64
LEVEL_S: Final = 1.0


class Row(NamedTuple):
    """One figure. ``good``: whether it reaches its goal."""

    title: str
    figure: str
    goal: str
    good: bool


class NoFolds:
    """Folds that know nothing."""

    changes = 0
    epoch = 0
    removed = Removed()

    def apply(self, record: Stored) -> Change:
        return NO_CHANGE

    def note_ids(self, producer: bytes, first: int, count: int, stored_ms: int, position: int, step: int) -> None:
        pass

    def queues_of(self, topic: str, properties: bytes) -> tuple[str, ...]:
        return ()

    def freeze(self) -> Iterator[bytes]:
        return iter(())

    def restore(self, snapshot: bytes) -> None:
        pass

    def topic_queues(self) -> Iterator[tuple[str, int]]:
        return iter(())

    def floors(self) -> Iterator[tuple[str, int]]:
        return iter(())


def in_turns(*works: Callable[[], Any]) -> list[float]:
    """Processor seconds of the best round of each."""
    best = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for number, work in enumerate(works):
            began = time.process_time()
            work()
            best[number] = min(best[number], time.process_time() - began)
    return best


def device_batch(count: int, body_bytes: int, queues: int = 8) -> list[Incoming]:
    """Messages of as many devices, over some queues."""
    batch = []
    for number in range(count):
        properties = encode_properties({"MQTT_TOPIC": f"telemetry/d{number}/temp", "MQTT_CLIENT": f"d{number}"})
        record = encode_record(b"telemetry", bytes(body_bytes), properties, queue_id=number % queues, flag=1)
        batch.append(incoming_of(record, Level.CACHE))
    return batch


def append_row(folder: Path) -> Row:
    """Batches at level ``cache`` beside plain writes of the same bytes."""
    batch = device_batch(BATCH, APPEND_BODY_BYTES)
    store = open_store(RealDisk(folder / "append"), StoreSettings(), NoFolds(), 1)
    blob = bytes(sum(one.run.size + 24 for one in batch))
    descriptor = os.open(folder / "plain", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, ROUNDS * BATCHES * len(blob))
    places = iter(range(0, ROUNDS * BATCHES * len(blob), len(blob)))

    def append() -> None:
        for _ in range(BATCHES):
            store.append(batch, 1)

    def plain() -> None:
        for _ in range(BATCHES):
            os.pwrite(descriptor, blob, next(places))

    own, theirs = in_turns(append, plain)
    os.close(descriptor)
    store.close(1)
    figure = f"{theirs / own:.0%} of plain write ({own / BATCHES / BATCH * 1e6:.2f} us a message)"
    return Row(f"append to cache, {APPEND_BODY_BYTES} B, batches of {BATCH}", figure, ">= 40 %", theirs / own >= 0.4)


def replay_row(folder: Path) -> Row:
    """A start that reads runs of devices again, beside their append."""
    settings = StoreSettings(retention_s=0.0, chunk_bytes=1 << 40)
    disk = RealDisk(folder / "replay")
    store = open_store(disk, settings, NoFolds(), 1)
    devices = [
        Destination("telemetry", encode_properties({"MQTT_TOPIC": f"telemetry/d{number}"}), Level.DISK)
        for number in range(REPLAY_DEVICES)
    ]
    tails = [record_tail(b"telemetry", device.properties) for device in devices]
    took = 0.0
    for _ in range(REPLAY_ROUNDS):
        runs = [Run(tail, 1, 1, [bytes(64)] * REPLAY_RUN) for tail in tails]
        for run in runs:
            run.queue_id = 0
        began = time.process_time()
        store.append_runs(runs, devices, 1)
        took += time.process_time() - began
    store.sync_all()
    disk.unlock()
    began = time.process_time()
    open_store(RealDisk(folder / "replay"), settings, NoFolds(), 1).close(1)
    again, count = time.process_time() - began, REPLAY_ROUNDS * REPLAY_DEVICES * REPLAY_RUN
    figure = (
        f"{again / took:.1f} times their append ({again / count * 1e6:.2f} us beside {took / count * 1e6:.2f} us each)"
    )
    return Row(f"replay of runs of {REPLAY_RUN} messages of 64 B", figure, "<= 1.3 times", again / took <= 1.3)


def follow_cost(folder: Path) -> tuple[float, float]:
    """Processor seconds for a message of a device's run: of its append at the leader, and of a copy that checks it,
    writes it and takes it in."""
    settings = StoreSettings(retention_s=0.0, chunk_bytes=1 << 40)
    stores = [
        open_store(RealDisk(folder / name), settings, NoFolds(), 1, is_owned=False, committed=0)
        for name in ("leader", "follower")
    ]
    leader, follower = (FollowerLog(store, tuple) for store in stores)
    stores[0].own()
    devices = [
        Destination("telemetry", encode_properties({"MQTT_TOPIC": f"telemetry/d{number}"}), Level.DISK)
        for number in range(REPLAY_DEVICES)
    ]
    tails = [record_tail(b"telemetry", device.properties) for device in devices]
    took = followed = 0.0
    for _ in range(REPLAY_ROUNDS):
        runs = [Run(tail, 1, 1, [bytes(64)] * REPLAY_RUN) for tail in tails]
        for run in runs:
            run.queue_id = 0
        began = time.process_time()
        stores[0].append_runs(runs, devices, 1)
        took += time.process_time() - began
        stretch = leader.stretch(follower.end, leader.end)
        began = time.process_time()
        follower.receive(stretch, 1)
        follower.commit(follower.end)
        followed += time.process_time() - began
    assert follower.applied == leader.end
    for store in stores:
        store.abandon()
    count = REPLAY_ROUNDS * REPLAY_DEVICES * REPLAY_RUN
    return took / count, followed / count


def follow_row(folder: Path) -> Row:
    """A copy beside its leader."""
    took, followed = follow_cost(folder)
    figure = f"{followed / took:.1f} times their append ({followed * 1e6:.2f} us beside {took * 1e6:.2f} us each)"
    return Row(
        f"a follower takes in runs of {REPLAY_RUN} messages of 64 B", figure, "<= 1.3 times", followed / took <= 1.3
    )


def read_rows(folder: Path) -> list[Row]:
    """Sequential pulls to a socket beside plain reads of the same file to the same socket, and beside sendfile."""
    store = open_store(RealDisk(folder / "read"), StoreSettings(), NoFolds(), 1)
    for _ in range(READ_MESSAGES // BATCH):
        store.append(device_batch(BATCH, READ_BODY_BYTES, queues=1), 1)
    descriptor = os.open(folder / "read" / "log" / f"{0:020d}.log", os.O_RDONLY)
    with drained_socket() as out:
        rows = [_read_row(store, descriptor, out, size) for size in READ_BYTES]
    os.close(descriptor)
    store.close(1)
    return rows


def _read_row(store: MessageStore, descriptor: int, out: socket.socket, read_bytes: int) -> Row:
    size, end = store.written, store.bounds("telemetry:0").end

    def pull() -> None:
        offset = 0
        while offset < end:
            pulled = store.read("telemetry:0", offset, 65_536, read_bytes)
            out.sendall(pulled.body)
            offset = pulled.next

    def plain() -> None:
        for at in range(0, size, read_bytes):
            out.sendall(os.pread(descriptor, read_bytes, at))

    def sent() -> None:
        at = 0
        while at < size:
            at += os.sendfile(out.fileno(), descriptor, at, size - at)

    own, theirs, kernel = in_turns(pull, plain, sent)
    figure = f"{theirs / own:.0%} of plain read, {kernel / own:.0%} of sendfile ({own / end * 1e6:.2f} us a message)"
    title = f"read in order from page cache, {READ_BODY_BYTES} B, pulls of {read_bytes >> 10} KiB"
    return Row(title, figure, ">= 50 % of plain read", theirs / own >= 0.5)


def scan_rows(folder: Path) -> list[Row]:
    """What a pulled message costs the store where its queue stands alone in the log, and where four queues were filled
    side by side; in turns."""
    stores = {
        queues: open_store(RealDisk(folder / f"scan-{queues}"), StoreSettings(), NoFolds(), 1) for queues in (1, 4)
    }
    for queues, store in stores.items():
        for _ in range(SCAN_MESSAGES // BATCH):
            store.append(device_batch(BATCH, APPEND_BODY_BYTES, queues), 1)
        store.sync_all()
    alone, beside = in_turns(*[partial(_scan, store, queues) for queues, store in stores.items()])
    for store in stores.values():
        store.close(1)
    rows = []
    for title, seconds in (("one queue", alone), ("four queues side by side", beside)):
        figure = seconds / SCAN_MESSAGES * 1e6
        title = f"read {title}, {APPEND_BODY_BYTES} B, pulls of {SCAN_COUNT:,}"
        rows.append(Row(title, f"{figure:.2f} us a message", f"<= {SCAN_GOAL_US} us", figure <= SCAN_GOAL_US))
    return rows


def _scan(store: MessageStore, queues: int) -> None:
    for number in range(queues):
        key, offset = f"telemetry:{number}", 0
        while offset < store.bounds(key).end:
            offset = store.read(key, offset, SCAN_COUNT, 4 << 20).next


class drained_socket:
    """A socket whose other end is read to nothing by another process."""

    def __enter__(self) -> socket.socket:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._near = socket.create_connection(server.getsockname())
            far, _ = server.accept()
        self._near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = os.fork()
        if not self._reader:
            self._near.close()
            room = bytearray(1 << 20)
            while far.recv_into(room):
                pass
            os._exit(0)
        far.close()
        return self._near

    def __exit__(self, *_: object) -> None:
        self._near.close()
        os.waitpid(self._reader, 0)


class Bench:
    """A broker without its network, with appends that follow each other without a pause."""

    def __init__(self, folder: Path) -> None:
        clock = RealClock()
        settings = BrokerSettings(data=folder)
        state = BrokerState()
        self.store: MessageStore = open_store(RealDisk(folder), settings.store(), state, clock.wall_ms())
        self.flusher = Flusher(self.store, clock, settings.flush_after_s, settings.flush_bytes, settings.quick_sync_s)
        guard = GuardedClock(clock)
        store_clock = StoreClock(guard, 0)
        timer_clock = TimerClock(guard, store_clock)
        self.lead = Lead(settings, state, self.store, store_clock, timer_clock, self.flusher.need)
        self.dispatch = self.lead.dispatch
        self.answered = 0
        self.error: PenstockError | None = None

    async def run(self, level: str, producers: int, batch: int, seconds: float) -> tuple[float, float]:
        """Messages per second of producers that wait for each batch's answer, and how many syncs each took."""
        topic = f"bench-{level}"
        self.dispatch.submit(CreateTopic(topic, 8, level), lambda result: None, 0)
        record = encode_record(topic.encode(), bytes(APPEND_BODY_BYTES), b"")
        request = Append(batch, False, record * batch)
        before = self._syncs()
        waiting: list[int] = list(range(producers))

        def answer(producer: int, result: Result) -> None:
            self.error = result if isinstance(result, PenstockError) else self.error
            self.answered += batch
            waiting.append(producer)

        async with real_world().own_thread() as offload, trio.open_nursery() as nursery:
            nursery.start_soon(self.flusher.run, self.lead, offload)
            self.answered, began = 0, time.perf_counter()
            while (time.perf_counter() < began + seconds or not self.answered) and self.error is None:
                ready, waiting = waiting, []
                for producer in ready:
                    self.dispatch.submit(request, partial(answer, producer), producer)
                self.dispatch.end_batch()
                await trio.lowlevel.checkpoint()
            elapsed, answered, syncs = time.perf_counter() - began, self.answered, self._syncs() - before
            while len(waiting) < producers:  # nothing is left for the next run
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        if self.error is not None:
            raise self.error
        return answered / elapsed, syncs / answered

    def _syncs(self) -> float:
        return self.lead.figures()["penstock_syncs_total"]


def level_rows(folder: Path) -> list[Row]:
    """Level ``disk`` beside level ``cache``, in turns, and one producer that waits for each message."""
    rates: dict[str, list[float]] = {"cache": [], "disk": []}
    single: list[tuple[float, float]] = []
    bench = Bench(folder / "levels")
    try:
        for _ in range(5):
            for level, found in rates.items():
                found.append(trio.run(bench.run, level, PRODUCERS, BATCH, LEVEL_S / 2)[0])
        for _ in range(3):
            single.append(trio.run(bench.run, "disk", 1, 1, LEVEL_S / 3))
    finally:
        bench.store.close(1)
    ratios = sorted(disk / cache for disk, cache in zip(rates["disk"], rates["cache"], strict=True))
    ratio = ratios[len(ratios) // 2]
    rate, per_message = max(single)
    return [
        Row(
            f"disk level, {PRODUCERS} producers, batches of {BATCH}",
            f"{ratio:.0%} of cache ({max(rates['disk']):,.0f} messages/s)",
            ">= 80 %",
            ratio >= 0.8,
        ),
        Row(
            "disk level, one producer, one message at a time",
            f"{per_message:.2f} syncs a message ({rate:,.0f} messages/s)",
            "one sync",
            per_message < 1.1,
        ),
    ]


def run() -> list[Row]:
    """Measures the short rows."""
    with tempfile.TemporaryDirectory(prefix="penstock-store-") as made:
        place = Path(made)
        return [
            append_row(place),
            replay_row(place),
            follow_row(place),
            *read_rows(place),
            *scan_rows(place),
            *level_rows(place),
        ]


def show(console: Console, rows: list[Row]) -> None:
    """Prints rows with their goals."""
    built = "compiled" if IS_COMPILED else "plain Python"
    table = Table(title=f"the store by itself, {built}", title_justify="left", box=box.SIMPLE_HEAD)
    for title in ("what", "measured", "goal", ""):
        table.add_column(title)
    for row in rows:
        table.add_row(row.title, row.figure, row.goal, "reached" if row.good else "[bold]not reached[/]")
    console.print(table)
