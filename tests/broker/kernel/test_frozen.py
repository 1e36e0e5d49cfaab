"""Frozen tables: a snapshot is that of its moment, whatever is done to the table before it is bytes."""

from __future__ import annotations

from collections.abc import Iterator

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.filters import fold as filters
from broker.groups import fold as offsets
from broker.kernel import frozen
from broker.kernel.fold import fact_record
from broker.kernel.frozen import Table
from broker.sessions import exchanges
from broker.sessions import fold as sessions
from broker.sessions.exchanges import Exchanges
from broker.state import BrokerState
from broker.store.records import Stored
from broker.topics import fold as topics
from penstock.protocol.message import FRAME_HEAD_BYTES, encode_properties, encode_record
from penstock.protocol.requests.groups import QueueOffset
from penstock.protocol.requests.sessions import CONNECTED, RELEASED, SessionSave
from tests.broker.store.store_rig import record_of


def row(key: str, value: list[int]) -> list[object]:
    return [key, value]


def test_a_value_is_copied_once_and_only_while_a_snapshot_needs_it() -> None:
    table: Table[list[int]] = Table({"a": [1], "b": [2]})
    first = table["a"]
    assert table.own("a", list) is first
    pieces = table.freeze(row)
    own = table.own("a", list)
    assert own is not first
    assert table.own("a", list) is own
    own.append(5)
    table["c"] = [3]
    del table["b"]
    assert msgpack.unpackb(b"".join(pieces)) == [["a", [1]], ["b", [2]]]
    assert table.own("a", list) is own
    assert table.rows(row) == [["a", [1, 5]], ["c", [3]]]


def stored(topic: str, body: list[object], number: int) -> Stored:
    record = record_of(fact_record(topic, body))
    return Stored(number * 100, 100, topic, 0, 0, b"", number, bytes(FRAME_HEAD_BYTES) + record)


def retained(name: str, body: bytes, number: int) -> Stored:
    properties = encode_properties({"MQTT_TOPIC": name})
    record = encode_record(b"t", body, properties, flag=4)
    return Stored(number * 100, 100, "t", 0, 4, properties, number, bytes(FRAME_HEAD_BYTES) + record)


NAMES = st.sampled_from(["a", "b", "c/d"])
FACTS = st.one_of(
    st.builds(lambda a, o, f: (filters.TOPIC, [a, o, [f]]), st.sampled_from(["open", "close"]), NAMES, NAMES),
    st.builds(lambda g, q, n: (offsets.TOPIC, offsets.Offsets.fact(g, [QueueOffset(q, n)])), NAMES, NAMES, st.just(7)),
    st.builds(
        lambda o, c, new: (sessions.TOPIC, sessions.Sessions.opening(o, c, new, 9, b"")), NAMES, NAMES, st.booleans()
    ),
    st.builds(
        lambda c, epoch, state: (
            sessions.TOPIC,
            sessions.Sessions.saving([SessionSave(c, epoch, state, 5, b"w", b"t", b"f")]),
        ),
        NAMES,
        st.integers(0, 30).map(lambda number: number * 100 + 1),
        st.sampled_from([CONNECTED, RELEASED]),
    ),
    st.builds(lambda c, i: (exchanges.TOPIC, Exchanges.fact(c, 1, [i])), NAMES, st.integers(1, 4)),
    st.builds(lambda t: (topics.TOPIC, [t, 4, "disk"]), NAMES),
    st.builds(lambda n, b: ("", [n, b]), NAMES, st.sampled_from([b"", b"x", b"y"])),
    st.builds(lambda c, i: (None, [c, i]), NAMES, st.integers(1, 4)),
)


def apply(state: BrokerState, facts: list[tuple[str | None, list[object]]], start: int) -> Iterator[None]:
    for number, (topic, body) in enumerate(facts, start):
        if topic is None:
            state.exchanges.stored(str(body[0]), 1, int(str(body[1])))
        elif topic:
            state.apply(stored(topic, body, number))
        else:
            state.apply(retained(str(body[0]), bytes(str(body[1]), "ascii") if body[1] else b"", number))
        yield


@given(st.lists(FACTS, max_size=25), st.lists(FACTS, max_size=25))
def test_what_is_applied_before_the_bytes_are_made_does_not_show_in_any_fold(
    before: list[tuple[str | None, list[object]]], after: list[tuple[str | None, list[object]]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frozen, "SLICE_ROWS", 1)
        state, same = BrokerState(), BrokerState()
        for one in (state, same):
            list(apply(one, before, 0))
        pieces, parts = state.freeze(), []
        for _ in apply(state, after, len(before)):
            parts.append(next(pieces, b""))
        assert b"".join([*parts, *pieces]) == same.snapshot()
