"""Long reads of neighbours: the same bytes as the careful way gives, and nothing that is not good."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store import bulk
from broker.store.message_store import MessageStore
from broker.store.queue_index import ENTRY20
from broker.store.settings import StoreSettings
from penstock.protocol.message import ENTRY, decode_batch
from penstock.protocol.requests.messages import Pulled
from tests.broker.store.store_rig import bodies, incoming, opened, stored
from tests.simulation.disk import SimDisk

WIDE = StoreSettings(
    segment_bytes=1 << 20, reserve_step_bytes=1 << 16, emergency_bytes=0, chunk_bytes=1 << 19, fresh_bytes=0
)
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
        assert pulled == carefully(store, offset, pulled.count)
        assert len(pulled.body) - pulled.count * ENTRY.size <= 150_000
    assert len(bodies(store)) == 1000


def test_a_long_pull_is_few_reads_and_ends_where_a_stretch_ends() -> None:
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


def entries(places: list[tuple[int, int]]) -> bytes:
    return b"".join(ENTRY20.pack(position, size, 0) for position, size in places)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=20), st.integers(1, 30))
def test_neighbours_are_counted_as_one_would_by_hand(steps: list[tuple[int, int]], bytes_max: int) -> None:
    at, places = 100, []
    for gap, size in steps:
        at += gap
        places.append((at, size))
        at += size
    count = total = 0
    for place, (position, size) in enumerate(places):
        if not size or position != places[0][0] + total or (place and total + size > bytes_max):
            break
        count, total = count + 1, total + size
    assert bulk.neighbours(entries(places), bytes_max) == count


def test_a_rotten_frame_in_a_long_read_is_passed_over_alone() -> None:
    disk = SimDisk()
    store = filled(disk, batches=2)
    disk.flip(LOG, store.position_of("t:0", 40) + 200)
    pulled = store.read("t:0", 0, 100, 1 << 20)
    assert [at for at, _ in decode_batch(pulled.count, pulled.body)] == [at for at in range(100) if at != 40]
