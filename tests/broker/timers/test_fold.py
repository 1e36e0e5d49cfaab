from __future__ import annotations

import sys
from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from broker.store.records import Stored
from broker.timers.fold import MINUTE_MS, Sleeper, Timers, timer_of
from penstock.protocol.message import FLAG_WOKEN
from tests.broker.facts import fact, take


def sleep(timers: Timers, due_ms: int, position: int, record: bytes = b"r") -> Sleeper:
    """Has a message sleep; what is known of it then."""
    stored = fact(timers.TOPICS[0], Timers.sleep(due_ms, record), position)
    timers.apply(stored)
    return Sleeper(max(due_ms, timers.mark[0]), position, position, stored.size)


def wake(timers: Timers, last: Sleeper) -> None:
    """Has a message wake: all before it have."""
    properties = f"P\x01v\x02TIMER\x01{timer_of(last)}".encode()
    timers.apply(Stored(0, 0, "t", 0, FLAG_WOKEN, properties, 0, b""))


def state(timers: Timers) -> bytes:
    return b"".join(timers.freeze())


def test_messages_wake_in_the_order_of_due_time_and_id() -> None:
    timers = Timers()
    late, early, same = sleep(timers, 130_000, 1), sleep(timers, 1_000, 2), sleep(timers, 1_000, 3)
    assert timers.due(999, 10, 1 << 20) == []
    assert timers.due(1_000, 10, 1 << 20) == [early, same]
    assert timers.due(1 << 40, 10, 1 << 20) == [early, same, late]
    assert len(timers) == 3
    assert timers.bytes == early.size + same.size + late.size


def test_what_has_woken_is_gone_and_nothing_else() -> None:
    timers = Timers()
    rows = [sleep(timers, due_ms, number) for number, due_ms in enumerate([5, 5, 70_000, 5, 200_000])]
    wake(timers, rows[1])
    assert timers.due(1 << 40, 10, 1 << 20) == [rows[3], rows[2], rows[4]]
    wake(timers, rows[2])
    assert timers.due(1 << 40, 10, 1 << 20) == [rows[4]]
    wake(timers, rows[4])
    assert (len(timers), timers.bytes, timers.next_due_ms) == (0, 0, None)


def test_a_message_that_is_due_before_what_has_woken_is_due_at_once_and_wakes_once() -> None:
    timers = Timers()
    wake(timers, sleep(timers, 100_000, 1))
    late = sleep(timers, 5, 2)
    assert late.due_ms == 100_000
    assert timers.due(100_000, 10, 1 << 20) == [late]
    wake(timers, late)
    assert len(timers) == 0


def test_a_cancelled_message_does_not_wake_and_is_told_from_one_that_has_woken() -> None:
    timers = Timers()
    first, second, third = (sleep(timers, 1_000 * number, number) for number in (1, 2, 3))
    wake(timers, first)
    take(timers, Timers.cancel(second.due_ms, second.id))
    states = [timers.state_of(one.due_ms, one.id) for one in (first, second, third)]
    assert states == ["woken", "unknown", "sleeping"]
    assert timers.due(1 << 40, 10, 1 << 20) == [third]
    wake(timers, third)
    restored = Timers()
    restored.restore(msgpack.unpackb(state(timers)))
    for known in (timers, restored):
        states = [known.state_of(one.due_ms, one.id) for one in (first, second, third)]
        assert states == ["woken", "unknown", "woken"], "a cancelled one did not wake, whatever time it is"


def test_a_carried_message_keeps_its_id_and_one_that_is_gone_is_not_carried_back() -> None:
    timers = Timers()
    old, new = sleep(timers, 1_000, 10), sleep(timers, 1_000, 90)
    assert timers.before(50, 10) == [old]
    take(timers, Timers.carry(old, b"r"), position=100)
    assert timers.before(50, 10) == []
    [kept] = timers.before(101, 10)[1:] or timers.before(101, 1)
    assert [(one.id, one.position) for one in timers.due(1_000, 10, 1 << 20)] == [(10, 100), (90, 90)]
    assert kept.id in (10, 90)
    wake(timers, new)
    take(timers, Timers.carry(old, b"r"), position=200)
    assert len(timers) == 0


def test_work_at_once_is_bounded_by_count_and_by_bytes_but_never_stands_still() -> None:
    timers = Timers()
    rows = [sleep(timers, 1, number, bytes(100)) for number in range(10)]
    assert timers.due(1, 3, 1 << 20) == rows[:3]
    assert timers.due(1, 10, rows[0].size * 2) == rows[:2]
    assert timers.due(1, 10, 1) == rows[:1]


def test_a_snapshot_is_of_its_moment_and_gives_the_state_back() -> None:
    timers = Timers()
    rows = [sleep(timers, 1_000 * (9 - number), number) for number in range(9)]
    frozen, before = timers.freeze(), state(Timers())
    wake(timers, rows[4])
    sleep(timers, 3, 99)
    other = Timers()
    other.restore(msgpack.unpackb(b"".join(frozen)))
    assert other.due(1 << 40, 99, 1 << 20) == sorted(rows)
    assert state(other) != before
    other.restore(None)
    assert state(other) == before


def test_the_next_due_time_is_never_told_too_late() -> None:
    timers = Timers()
    assert timers.next_due_ms is None
    for number, due_ms in enumerate([7 * MINUTE_MS + 9, 7 * MINUTE_MS + 3, 2 * MINUTE_MS + 1]):
        sleep(timers, due_ms, number)
        earliest = min(row.due_ms for row in timers.after(0, 0, 99) or [])
        assert timers.next_due_ms is not None
        assert earliest // MINUTE_MS * MINUTE_MS <= timers.next_due_ms <= earliest


steps = st.lists(
    st.one_of(
        st.tuples(st.just("sleep"), st.integers(0, 5 * MINUTE_MS)),
        st.tuples(st.sampled_from(["wake", "cancel", "carry"]), st.integers(0, 1 << 20)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_any_mix_of_facts_gives_the_state_of_the_model_live_and_restored(facts: list[tuple[str, int]]) -> None:
    timers, model = Timers(), dict[int, Sleeper]()
    for position, (what, number) in enumerate(facts, start=1):
        if what == "sleep":
            one = sleep(timers, number, position)
            model[one.id] = one
        elif what == "restart":
            snapshot = state(timers)
            timers = Timers()
            timers.restore(msgpack.unpackb(snapshot))
            assert state(timers) == snapshot
        elif model:
            one = sorted(model.values())[number % len(model)]
            if what == "wake":
                wake(timers, one)
                model = {key: other for key, other in model.items() if other[:2] > one[:2]}
            elif what == "cancel":
                take(timers, Timers.cancel(one.due_ms, one.id))
                del model[one.id]
            else:
                body: list[Any] = Timers.carry(one, b"r")
                model[one.id] = one._replace(position=position, size=fact(timers.TOPICS[0], body).size)
                take(timers, body, position)
        rows = sorted(model.values())
        assert timers.due(1 << 40, 1 << 20, 1 << 30) == rows
        assert timers.after(0, -1 + 1, 1 << 20) == rows
        assert (len(timers), timers.bytes) == (len(rows), sum(row.size for row in rows))


def test_a_million_sleeping_messages_take_under_60_megabytes() -> None:
    timers, minutes = Timers(), 40 * 24 * 60
    for number in range(minutes):
        timers._add(Sleeper(number * 60_000, number, number, 100))
    fixed = sys.getsizeof(timers._buckets)
    for key, bucket in timers._buckets.items():
        fixed += sys.getsizeof(key) + sys.getsizeof(bucket) + sys.getsizeof(bucket.rows) - len(bucket.rows)
    row = len(bucket.rows)
    assert len(timers) == minutes
    assert fixed + 1_000_000 * row * 9 // 8 < 60_000_000  # a bytearray grows by an eighth
