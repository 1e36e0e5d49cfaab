"""Starts over damage, with all else that goes wrong at the same time: full and read-only disks, derived files that are
lost, starts that die, filters that end and come again.

The model is what was sent to each queue, less what has rotted. Whatever happens, a queue gives exactly that, in its
order, and nobody is ever given two messages under one offset.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest

from broker.store import merging
from broker.store.message_store import MessageStore
from broker.store.settings import StoreSettings
from penstock.errors import StorageFull, TooLarge
from tests.broker.store.store_rig import command, incoming, messages, opened, sync, tick
from tests.simulation.disk import PowerCut, SimDisk

TOPICS = "abc"
FILTERS = "xyz"
DERIVED = ("index", "checkpoint")


class Harmed:
    """A store, the harm done to it, and what it has to give. Everything that is sent is synced at once."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.settings = StoreSettings(
            segment_bytes=rng.choice([4096, 8192, 1 << 16]),
            reserve_step_bytes=rng.choice([512, 4096]),
            emergency_bytes=rng.choice([0, 2048]),
            chunk_bytes=rng.choice([300, 1500, 1 << 20]),
            retention_s=0.0,
            fresh_bytes=0,
        )
        self.disk = SimDisk(seed)
        self.now_ms = 1000
        self.count = 0
        self.topic_of: dict[str, str] = {}  # by open filter
        self.sent: dict[str, list[bytes]] = {}
        self.positions: dict[bytes, int] = {}
        self.rotten: set[bytes] = set()
        self.told: dict[tuple[str, int], bytes] = {}
        self.store = opened(self.disk, self.settings, self.now_ms)

    def send(self) -> None:
        topic = self.rng.choice(TOPICS)
        bodies = [b"%d" % (self.count + number) + bytes(self.rng.choice([0, 200])) for number in range(self.few())]
        placed = self.store.append([incoming(body, topic) for body in bodies], self.now_ms)
        sync(self.store)
        self.count += len(bodies)
        self.positions |= {body: place.position for body, place in zip(bodies, placed, strict=True)}
        for key in [f"{topic}:0", *[key for key, wanted in self.topic_of.items() if wanted == topic]]:
            self.sent.setdefault(key, []).extend(bodies)

    def few(self) -> int:
        return self.rng.choice([1, 1, 3, 40])

    def turn_filter(self) -> None:
        name, topic = self.rng.choice(FILTERS), self.rng.choice(TOPICS)
        if "~" + name in self.topic_of:
            self.store.append([command(f"-{name}")], self.now_ms)
            del self.topic_of["~" + name], self.sent["~" + name]
        else:
            self.store.append([command(f"+{name} {topic}")], self.now_ms)
            self.topic_of["~" + name], self.sent["~" + name] = topic, []
        sync(self.store)

    def tick(self) -> None:
        self.now_ms += self.rng.choice([0, 30, 3000])
        tick(self.store, self.now_ms)
        sync(self.store)

    def fill_or_free(self) -> None:
        self.disk.capacity = None if self.disk.capacity else self.disk.used() + self.rng.choice([0, 100, 3000])

    def protect_or_free(self) -> None:
        self.disk.read_only = set() if self.disk.read_only else set(DERIVED)

    def rot(self) -> None:
        """Behind what rots stands a seal that knows it to have been durable."""
        self.store.seal(self.now_ms)
        sync(self.store)
        whole = [body for body in self.positions if body not in self.rotten]
        first = self.rng.randrange(len(whole) or 1)
        for body in whole[first : first + self.few()]:
            position = self.positions[body]
            base = max(base for base in self.store._log.bases if base <= position)
            self.disk.flip(f"log/{base:020d}.log", position - base + 50)
            self.rotten.add(body)

    def restart(self) -> None:
        if self.rng.random() < 0.3:
            self.store.close(self.now_ms)
        self.die()
        if self.rng.random() < 0.5:
            share = self.rng.choice([0.3, 1.0])
            for path in [path for folder in DERIVED for path in self.disk.paths(folder)]:
                if self.rng.random() < share:
                    self.rng.choice([self.disk.delete, self.disk.obstruct])(path)
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            self.disk.cut_power("any", self.rng.randrange(40))
            with contextlib.suppress(PowerCut):
                self.start()
            self.die()
        self.store = self.start()

    def die(self) -> None:
        self.rng.choice([SimDisk.kill, SimDisk.lose_power])(self.disk)

    def start(self) -> MessageStore:
        return opened(self.disk, self.settings, self.now_ms)

    def check(self) -> None:
        for key, sent in self.sent.items():
            left = [body for body in sent if body not in self.rotten]
            if not left and key not in self.topic_of:
                continue
            got = list(messages(self.store, key))
            for offset, body in got:
                assert self.told.setdefault((key, offset), body) == body, f"{key} {offset}"
            if not (key in self.topic_of and self.store._index.holds_moved):
                assert [body for _, body in got if body not in self.rotten] == left, key


STEPS: list[Callable[[Harmed], None]] = [
    *[Harmed.send] * 8,
    *[Harmed.tick] * 5,
    *[Harmed.restart] * 3,
    Harmed.turn_filter,
    Harmed.fill_or_free,
    Harmed.protect_or_free,
    Harmed.rot,
]


@pytest.mark.parametrize("part", range(4))
def test_no_offset_means_two_messages_and_none_is_missing(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "DIRECTORIES_BYTES_MIN", 8)
    for seed in range(part * 12, part * 12 + 12):
        harmed = Harmed(seed)
        for _ in range(60):
            with contextlib.suppress(StorageFull, TooLarge):
                harmed.rng.choice(STEPS)(harmed)
                harmed.check()
