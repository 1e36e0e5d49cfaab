"""Equal prefixes of the log give equal states and equal queues, byte for byte, whatever was asked of the broker.

A mix of all requests runs against a broker; at many positions it is noted what the state was. Then the log is cut at
some of them and replayed, from its beginning and from what derived files there are.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.groups.fold import Offsets
from broker.sessions.gateway_epochs import GatewayEpochs
from broker.state import BrokerState
from broker.store.message_store import MessageStore
from broker.store.queue_index import LIGHT
from broker.store.recovery import open_store
from tests.broker.broker_rig import Rig
from tests.broker.recorded import RecordedState, digest
from tests.broker.store.store_rig import segment_paths
from tests.properties.request_mix import Mix
from tests.simulation.disk import SimDisk

STEPS = 400
CUTS = 6
RETENTION_BYTES = 30_000
Rows = dict[str, tuple[int, int]]


def rows_of(store: MessageStore) -> Rows:
    """First and next offset of every queue that has had messages; a light one counts from its beginning."""
    queues = [queue for queue in store._index if queue.next > queue.first or queue.key.startswith(LIGHT)]
    return {queue.key: (queue.first, queue.next) for queue in queues}


def cut_copy(disk: SimDisk, position: int, *, derived: bool) -> SimDisk:
    """The log up to a position, on another disk; with chunks, and with checkpoints of the log before it."""
    other = SimDisk()
    for path in segment_paths(disk):
        base = int(path[4:24])
        if base < position:
            other.put(path, disk.read(path)[: position - base])
    if derived:
        for path in [*disk.paths("index"), *disk.paths("checkpoint")]:
            if int(path.split("/")[1][:20]) <= position:
                other.put(path, disk.read(path))
    return other


def run_mix(seed: int, state: RecordedState, retention_bytes: int) -> tuple[Rig, dict[int, tuple[bytes, Rows]]]:
    """A broker behind a mix of requests, and what it was after each of them."""
    rng = random.Random(seed)
    rig = Rig(SimDisk(seed), state=state, segment_bytes=1 << 14, chunk_bytes=1 << 11, retention_bytes=retention_bytes)
    mix = Mix(rig, rng)
    after: dict[int, tuple[bytes, Rows]] = {}
    for _ in range(STEPS):
        mix.step()
        if rng.random() < 0.3:
            after[rig.store.written] = digest(rig.state), rows_of(rig.store)
    rig.sync()
    return rig, after


def check_cut(rig: Rig, position: int, wanted: bytes, rows: Rows | None, *, derived: bool) -> None:
    state = BrokerState()
    store = open_store(cut_copy(rig.disk, position, derived=derived), rig.settings.store(), state, 1, is_owned=False)
    assert (store.written, store.damage) == (position, [])
    if digest(state) != wanted:
        raise AssertionError(f"the state behind position {position} differs; derived files: {derived}")
    if rows is not None:
        assert rows_of(store) == rows


def check_mix(seed: int, retention_bytes: int) -> None:
    """Runs a mix and replays some prefixes of its log."""
    state = RecordedState()
    rig, after = run_mix(seed, state, retention_bytes)
    rng = random.Random(seed)
    moments: dict[int, tuple[bytes, Rows | None]] = {at: (seen, None) for (at, _), seen in state.seen.items()}
    moments |= after
    reachable = [position for position in sorted(moments) if position > rig.state.removed.said_at]  # what is left
    for position in rng.sample(reachable, min(CUTS, len(reachable))):
        for derived in (False, True):
            check_cut(rig, position, *moments[position], derived=derived)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 30), retention_bytes=st.sampled_from([0, 0, RETENTION_BYTES]))
def test_a_replay_of_any_prefix_has_the_state_and_the_queues_that_were_there(seed: int, retention_bytes: int) -> None:
    check_mix(seed, retention_bytes)


# ---------------------------------------------------------------- planted bugs


def look_at_the_clock(patch: pytest.MonkeyPatch) -> None:
    apply = Offsets.apply
    patch.setattr(Offsets, "apply", lambda self, record: apply(self, record._replace(stored_ms=time.time_ns())))


def forget_a_part_of_the_state_in_checkpoints(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GatewayEpochs, "restore", lambda self, snapshot: GatewayEpochs.__init__(self))


@pytest.mark.parametrize("plant", [look_at_the_clock, forget_a_part_of_the_state_in_checkpoints])
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="the state behind position"):
        check_mixes(range(6))


def check_mixes(seeds: range) -> None:
    for seed in seeds:
        check_mix(seed, 0)


def test_the_mix_reaches_every_fold() -> None:
    empty, changed = msgpack.unpackb(BrokerState().snapshot()), set[str]()
    for seed in range(4):
        rig, _ = run_mix(seed, RecordedState(), RETENTION_BYTES)
        now = msgpack.unpackb(rig.state.snapshot())
        changed |= {key for key in now if now[key] != empty[key]}
    assert changed | {"identity", "members"} == set(empty), "what names the log and its copies is the server's"
