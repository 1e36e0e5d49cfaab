"""The whole store against a plain list: appends, reads, syncs, crashes of both kinds, full disks, lost derived files.

The model is the list of everything that was appended, in order, with the position that the store gave it. After any
crash the store must show a prefix of that list that holds at least all that was durable: every queue, light queues and
retained values included, is computed from the prefix and compared entry by entry and byte by byte.
"""

from __future__ import annotations

import contextlib
import errno
import random
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from broker.store.destinations import Incoming
from broker.store.message_store import MessageStore
from broker.store.recovery import open_store
from broker.store.settings import StoreSettings
from penstock.errors import QueueNotFound, StorageFailed, StorageFull
from tests.broker.store.store_rig import FILTER_TOPIC, SmallFolds, command, incoming, messages, sync, tick
from tests.simulation.disk import SimDisk

TOPICS = ("a", "b", "c")
CACHED = "c"
LIGHT = ("x", "y")
DERIVED = ("index", "checkpoint")


class Event(NamedTuple):
    """Something that was appended."""

    position: int
    topic: str
    queue_id: int
    body: bytes
    retain: bool


class Shape(NamedTuple):
    """What the queues hold after a prefix of the events: first offset and bodies of each."""

    queues: dict[str, tuple[int, list[bytes]]]
    retained: dict[str, bytes]


def shape_of(events: list[Event]) -> Shape:
    """The plain model: every queue as a list."""
    queues: dict[str, tuple[int, list[bytes]]] = {}
    retained: dict[str, bytes] = {}
    opened: dict[str, str] = {}
    for event in events:
        if event.topic == FILTER_TOPIC:
            name, _, topic = event.body[1:].decode().partition(" ")
            key = "~" + name
            if event.body.startswith(b"+"):
                opened[key] = topic
                queues.setdefault(key, (event.position, []))
            else:
                opened.pop(key, None)
                queues.pop(key, None)
            continue
        keys = [f"{event.topic}:{event.queue_id}", *[key for key, topic in opened.items() if topic == event.topic]]
        for key in keys:
            queues.setdefault(key, (0, []))[1].append(event.body)
        if event.retain:
            retained[event.topic] = event.body
    return Shape(queues, retained)


user_record = st.builds(
    lambda topic, queue_id, body, retain: incoming(
        body, topic, queue_id, tag="tag", key="key", retain=retain, cache=topic == CACHED
    ),
    st.sampled_from(TOPICS),
    st.integers(0, 1),
    st.binary(max_size=300),
    st.booleans(),
)
filter_change = st.builds(
    lambda sign, name, topic: command(f"{sign}{name} {topic}"),
    st.sampled_from("++-"),
    st.sampled_from(LIGHT),
    st.sampled_from(TOPICS),
)


class StoreMachine(RuleBasedStateMachine):
    """Drives a store on a simulated disk beside the model."""

    @initialize(
        seed=st.integers(0, 1 << 16),
        segment_bytes=st.sampled_from([4096, 6000, 32_768]),
        chunk_bytes=st.sampled_from([600, 2500, 1 << 20]),
        retention_bytes=st.sampled_from([0, 0, 9000]),
    )
    def begin(self, seed: int, segment_bytes: int, chunk_bytes: int, retention_bytes: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(seed)
        self.settings = StoreSettings(
            segment_bytes=segment_bytes,
            reserve_step_bytes=1024,
            emergency_bytes=0,
            chunk_bytes=chunk_bytes,
            retention_bytes=retention_bytes,
            retention_s=0.0,
        )
        self.now_ms = 1_000_000
        self.events: list[Event] = []
        self.store: MessageStore
        self.folds: SmallFolds
        self.reopen()

    def reopen(self) -> None:
        self.folds = SmallFolds()
        self.store = open_store(self.disk, self.settings, self.folds, self.now_ms)

    # ------------------------------------------------------------ what is done

    @rule(batch=st.lists(st.one_of(user_record, user_record, filter_change), min_size=1, max_size=5))
    def append(self, batch: list[Incoming]) -> None:
        self.take_down(batch, self.store.append(batch, self.now_ms))

    def take_down(self, batch: list[Incoming], placed: list[object]) -> None:
        for one, place in zip(batch, placed, strict=True):
            run, topic = one.run, one.destination.topic
            self.events.append(Event(place.position, topic, run.queue_id, run.bodies[0], run.flag != 0))  # type: ignore[attr-defined]

    @rule()
    def sync(self) -> None:
        sync(self.store)

    @rule(batch=st.lists(user_record, min_size=1, max_size=3))
    def append_during_a_sync(self, batch: list[Incoming]) -> None:
        point = self.store.sync_point()
        self.take_down(batch, self.store.append(batch, self.now_ms))
        self.store.sync()
        self.store.mark_durable(point)
        self.store.mark_committed(point)

    @rule(passed_ms=st.sampled_from([1, 100]))
    def tick(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        tick(self.store, self.now_ms)

    @rule(batch=st.lists(user_record, min_size=1, max_size=4), share=st.sampled_from([0.0, 0.5, 0.95]))
    def append_to_a_full_disk(self, batch: list[Incoming], share: float) -> None:
        self.disk.half_written = share
        self.disk.capacity = self.disk.used()
        with contextlib.suppress(StorageFull):
            self.take_down(batch, self.store.append(batch, self.now_ms))
        self.disk.capacity = None

    @rule(
        kind=st.sampled_from(["any", "pwrite", "reserve"]), after=st.integers(0, 3), share=st.sampled_from([0.0, 0.6])
    )
    def a_call_finds_no_room(self, kind: str, after: int, share: float) -> None:
        self.disk.half_written = share
        self.disk.fail(kind, errno.ENOSPC, after)
        batch = [incoming(b"when full", "a")]
        try:
            self.take_down(batch, self.store.append(batch, self.now_ms))
            tick(self.store, self.now_ms)
            sync(self.store)
        except StorageFull:
            pass
        except StorageFailed:  # "no room" from a sync is a failed sync
            self.disk._failures.clear()
            self.power_loss()
        self.disk._failures.clear()

    @rule()
    def a_sync_fails(self) -> None:
        self.disk.fail("sync", errno.EIO)
        with contextlib.suppress(StorageFailed):
            sync(self.store)
        self.power_loss()

    @rule()
    def clean_restart(self) -> None:
        everything = len(self.events)
        self.store.close(self.now_ms)
        self.reopen()
        self.check_prefix(everything)

    @rule()
    def kill(self) -> None:
        everything = len(self.events)
        self.disk.kill()
        self.reopen()
        self.check_prefix(everything)

    @rule()
    def power_loss(self) -> None:
        durable = self.store.durable
        self.disk.lose_power()
        self.reopen()
        self.check_prefix(sum(event.position < durable for event in self.events))

    @rule(crash=st.booleans(), harm=st.sampled_from(["delete", "flip", "cut", "all"]))
    def harm_derived_files(self, crash: bool, harm: str) -> None:
        everything = len(self.events)
        self.disk.kill() if crash else self.store.close(self.now_ms)
        paths = [path for folder in DERIVED for path in self.disk.paths(folder)]
        for path in paths if harm == "all" else self.rng.sample(paths, min(1, len(paths))):
            data = self.disk.read(path)
            if harm in ("delete", "all"):
                self.disk.delete(path)
            elif harm == "flip":
                self.disk.flip(path, self.rng.randrange(len(data)), self.rng.randrange(8))
            else:
                self.disk.put(path, data[: self.rng.randrange(len(data))])
        self.reopen()
        self.check_prefix(everything)

    # ------------------------------------------------------------ what must hold

    def check_prefix(self, least: int) -> None:
        """The store holds a prefix of what was appended, and at least so much of it."""
        assert self.store.damage == []
        known = [event.position for event in self.events]
        last = max([self.folds.last, *self.last_positions()], default=-1)
        survived = sum(position <= last for position in known)
        assert survived >= least, f"{least - survived} acknowledged records are lost"
        del self.events[survived:]
        self.compare(readable_only=False)

    def last_positions(self) -> list[int]:
        ends = []
        for topic in TOPICS:
            for queue_id in (0, 1):
                try:
                    bounds = self.store.bounds(f"{topic}:{queue_id}")
                except QueueNotFound:
                    continue
                if bounds.end > bounds.min:
                    ends.append(self.store.position_of(bounds.queue, bounds.end - 1))
        return ends

    @invariant()
    def reads_agree_with_the_model(self) -> None:
        self.compare(readable_only=True)

    def compare(self, *, readable_only: bool) -> None:
        shape = shape_of(self.events)
        assert self.folds.retained == shape.retained
        for key, (first, wanted) in shape.queues.items():
            bounds = self.store.bounds(key)
            assert self.store.next_offset(key) == first + len(wanted)
            assert first <= bounds.min <= bounds.end <= first + len(wanted)
            assert readable_only or bounds.end == first + len(wanted)
            if not self.settings.retention_bytes:
                assert bounds.min == first
            count_max, bytes_max = self.rng.randint(1, 9), self.rng.choice([1, 400, 100_000])
            found = list(messages(self.store, key, count_max=count_max, bytes_max=bytes_max))
            assert found == [(offset, wanted[offset - first]) for offset in range(bounds.min, bounds.end)], (
                f"queue {key} is not what was stored"
            )
        for name in LIGHT:
            if "~" + name not in shape.queues:
                try:
                    self.store.bounds("~" + name)
                except QueueNotFound:
                    continue
                raise AssertionError(f"queue ~{name} lives on")


def drive_the_store(*, shrink: bool = False) -> None:
    """Runs the machine the same way every time; without ``shrink`` a failure is shown as it was found."""
    kept = set(Phase) if shrink else set(Phase) - {Phase.shrink, Phase.explain}
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=15,
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
            phases=[phase for phase in Phase if phase in kept],
        ),
    )


def test_the_store_agrees_with_a_plain_list() -> None:
    drive_the_store(shrink=True)
