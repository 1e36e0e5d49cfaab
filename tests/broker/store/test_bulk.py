"""Long reads: what each queue holds, whatever stands between, and nothing that is not good."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store import bulk
from broker.store.frames import crc32c
from broker.store.message_store import MessageStore
from broker.store.queue_index import ENTRY20
from broker.store.settings import StoreSettings
from penstock.protocol.message import ENTRY, decode_batch, tag_hash
from penstock.protocol.requests.messages import Pulled
from tests.broker.store.store_rig import bodies, incoming, opened, stored
from tests.simulation.disk import SimDisk

WIDE = StoreSettings(
    segment_bytes=1 << 20, reserve_step_bytes=1 << 16, emergency_bytes=0, chunk_bytes=1 << 19, fresh_bytes=0
)
LONG = replace(WIDE, segment_bytes=1 << 25)
LOG = "log/00000000000000000000.log"


def filled(disk: SimDisk, batches: int = 20, size: int = 500) -> MessageStore:
    store = opened(disk, WIDE)
    for number in range(batches):
        stored(store, *[incoming(f"{number} {place}".ljust(size)) for place in range(50)])
    return store


def carefully(store: MessageStore, offset: int, count: int) -> Pulled:
    """The same pull, the other way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "BULK_FROM", 1 << 30)
        return store.read("t:0", offset, count, 1 << 20)


@pytest.mark.interpreted
@pytest.mark.parametrize("offset", [0, 1, 117, 500, 960])
@pytest.mark.parametrize("again", [False, True])
def test_bytes_are_those_of_the_careful_way(offset: int, again: bool) -> None:
    disk = SimDisk()
    store = filled(disk)
    if again:
        disk.kill()
        store = opened(disk, WIDE)
        assert len(store._log.stretches) == 0
    for _ in range(2):
        pulled = store.read("t:0", offset, 65_536, 150_000)
        assert pulled.count >= bulk.BULK_FROM
        assert pulled.checksum == crc32c(bytes(pulled.body))
        assert replace(pulled, checksum=0) == carefully(store, offset, pulled.count)
        assert len(pulled.body) - pulled.count * ENTRY.size <= 150_000
    assert len(bodies(store)) == 1000


def test_a_long_pull_is_few_reads() -> None:
    disk = SimDisk()
    store = filled(disk)
    disk.calls.clear()
    offset, pulls = 0, 0
    while offset < 1000:
        pulled = store.read("t:0", offset, 65_536, 200_000)
        offset, pulls = pulled.next, pulls + 1
    assert disk.calls["pread"] <= 2 * pulls + 1


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("number", "byte", "bit"), [(0, 0, 0), (117, 30, 7), (500, 300, 3), (998, 52, 1), (999, 610, 5)]
)
def test_a_flipped_bit_anywhere_is_never_served(again: bool, number: int, byte: int, bit: int) -> None:
    disk = SimDisk()
    store = filled(disk)
    if again:
        disk.kill()
        store = opened(disk, WIDE)
    assert len(bodies(store)) == 1000
    place = store.position_of("t:0", number)
    size = ENTRY20.unpack_from(store._reading._entries(store._index.get("t:0"), number, 1))[1]
    disk.flip(LOG, place + byte % size, bit)
    offset, found = 0, []
    while offset < 1000:
        pulled = store.read("t:0", offset, 65_536, 150_000)
        found += [at for at, message in decode_batch(pulled.count, pulled.body)]
        offset = pulled.next
    assert found == [at for at in range(1000) if at != number]
    assert store.damaged == 1


def test_a_rotten_frame_in_a_long_read_is_passed_over_alone() -> None:
    disk = SimDisk()
    store = filled(disk, batches=2)
    disk.flip(LOG, store.position_of("t:0", 40) + 200)
    pulled = store.read("t:0", 0, 100, 1 << 20)
    assert [at for at, _ in decode_batch(pulled.count, pulled.body)] == [at for at in range(100) if at != 40]


def test_pages_that_cannot_be_read_cost_a_long_read_only_their_own_messages() -> None:
    disk = SimDisk()
    store = filled(disk, batches=4)
    disk.spoil_page(LOG, store.position_of("t:0", 100) + 100)
    pulled = store.read("t:0", 0, 200, 1 << 20)
    found = [at for at, _ in decode_batch(pulled.count, pulled.body)]
    assert (pulled.next, len(found) + store.damaged) == (200, 200)
    assert 185 < len(found) < 200
    assert 100 not in found


class Sent(NamedTuple):
    """A message of the log in which queues stand side by side."""

    queue: int
    body: bytes
    tag: str


def side_by_side(seed: int, count: int) -> list[Sent]:
    """Messages of queues of which some have many and some have few, of several sizes, in runs of several lengths."""
    rng = random.Random(seed)
    sizes = rng.choice([[300], [100, 110, 120], list(range(0, 900)), [50, 20_000]])
    lengths = rng.choice([[1], [1, 2, 5], [40]])
    sent: list[Sent] = []
    while len(sent) < count:
        queue = min(rng.randrange(6), rng.randrange(6))
        for _ in range(rng.choice(lengths)):
            body = b"%d" % len(sent)
            sent.append(Sent(queue, body.ljust(rng.choice(sizes), b"."), rng.choice(["", "a", "b"])))
    return sent


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_queues_side_by_side_give_each_its_own_and_what_is_rotten_is_left_out(seed: int, again: bool) -> None:
    disk, rng, sent = SimDisk(), random.Random(seed), side_by_side(seed, 1500)
    store = opened(disk, WIDE)
    for at in range(0, len(sent), 50):
        stored(store, *[incoming(one.body, queue_id=one.queue, tag=one.tag) for one in sent[at : at + 50]])
        store.tick(1000)
    if again:
        disk.kill()
        store = opened(disk, WIDE)
    for queue in range(6):
        own = [one for one in sent if one.queue == queue]
        rotten = set(rng.sample(range(len(own)), min(queue, len(own))))
        tags = rng.choice([[], [], ["a"], ["a", "b"]])
        hashes = frozenset(map(tag_hash, tags))
        for at in rotten:
            position = store.position_of(f"t:{queue}", at)
            path = f"log/{position >> 20 << 20:020d}.log"
            disk.flip(path, position % (1 << 20) + rng.randrange(116), rng.randrange(8))
        before = store.damaged
        wanted = [one.body for at, one in enumerate(own) if (not tags or one.tag in tags) and at not in rotten]
        found, offset = [], 0
        while offset < len(own):
            count_max, bytes_max = rng.choice([33, 100, 65_536]), rng.choice([1, 10_000, 4 << 20])
            pulled = store.read(f"t:{queue}", offset, count_max, bytes_max, hashes)
            assert offset < pulled.next <= len(own)
            assert pulled.count <= count_max
            assert pulled.count <= 1 or len(pulled.body) - pulled.count * ENTRY.size <= bytes_max
            for place, message in decode_batch(pulled.count, pulled.body):
                assert offset <= place < pulled.next
                assert message.body == own[place].body
                found.append(message.body)
            offset = pulled.next
        assert found == wanted
        assert store.damaged - before == len([at for at in rotten if not tags or own[at].tag in tags])


def test_what_one_queue_has_read_need_not_be_looked_at_frame_by_frame_for_the_next() -> None:
    disk = SimDisk()
    store = opened(disk, WIDE)
    for number in range(10):
        stored(store, *[incoming(f"{number} {place}".ljust(500), queue_id=place % 4) for place in range(100)])
    disk.kill()
    store = opened(disk, WIDE)
    first = store.read("t:0", 0, 1000, 1 << 20)
    learned = len(store._log.stretches)
    assert learned > 5
    others = [store.read(f"t:{queue}", 0, 1000, 1 << 20) for queue in range(1, 4)]
    assert [pulled.count for pulled in (first, *others)] == [250] * 4
    assert len(store._log.stretches) == learned


def test_one_pull_reads_no_more_than_others_may_wait_for() -> None:
    disk = SimDisk()
    store = opened(disk, LONG)
    for _ in range(100):
        stored(store, *[incoming(bytes(1000), queue_id=place % 4) for place in range(100)])
    disk.bytes_read = offset = 0
    while offset < 2500:
        before = disk.bytes_read
        pulled = store.read("t:3", offset, 65_536, 4 << 20)
        assert disk.bytes_read - before <= bulk.WORK_BYTES_MAX + 2 * bulk.SPAN_BYTES_MAX
        assert pulled.count >= 300 or pulled.next == 2500
        offset = pulled.next


def test_frames_far_apart_are_read_without_what_is_between_them() -> None:
    disk = SimDisk()
    store = opened(disk, LONG)
    for number in range(64):
        between = [incoming(bytes(10_000), queue_id=1) for _ in range(4)]
        stored(store, incoming(str(number)), *between)
    disk.bytes_read = 0
    pulled = store.read("t:0", 0, 100, 1 << 20)
    assert pulled.count == 64
    assert disk.bytes_read < 64 * 200


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 1, 2, 2, 30, 70_000])), min_size=1, max_size=90),
    st.booleans(),
)
def test_what_is_cut_out_is_what_stands_there(steps: list[tuple[int, int]], alike: bool) -> None:
    at, places = 0, []
    for gap, size in steps:
        size = 2 if alike else size
        places.append((at + gap, size))
        at += gap + size
    data = random.Random(1).randbytes(at)
    starts, sizes = np.array(places, np.int64).T
    wanted = b"".join([data[start : start + size] for start, size in places])
    assert b"".join(bulk.cut(data, starts, sizes)) == wanted


@given(
    st.lists(st.tuples(st.sampled_from([0, 120, 130, 500]), st.sampled_from([0, 7, 8])), min_size=1, max_size=40),
    st.sampled_from([frozenset[int](), frozenset([7]), frozenset([7, 8, 9])]),
    st.integers(1, 20),
    st.integers(1, 3000),
)
def test_entries_are_chosen_as_one_would_by_hand(
    made: list[tuple[int, int]], tags: frozenset[int], count_max: int, bytes_max: int
) -> None:
    raw = b"".join([ENTRY20.pack(number * 1000, size, tag) for number, (size, tag) in enumerate(made)])
    chosen: list[int] = []
    looked_at, left = len(made), bytes_max
    for number, (size, tag) in enumerate(made):
        if size and (not tags or tag in tags):
            if chosen and (size > left or len(chosen) >= count_max):
                looked_at = number
                break
            chosen.append(number)
            left -= size
    places, seen = bulk.choose(np.frombuffer(raw, bulk.ENTRY_DTYPE), tags, count_max, bytes_max)
    assert (places.tolist(), seen) == (chosen, looked_at)
