"""Rows as runs: what a broker would decode is what the rows say, whatever batches they came in."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidMessage, PenstockError, TooLarge
from penstock.protocol.message import BODY_BYTES_MAX, FLAG_SEQUENCED, ReceivedMessage, decode_message
from penstock.protocol.runs import decode_runs, record_of
from penstock.spark.sink.blocks import BLOCK_BYTES, BLOCK_ROWS, Packed, Packing, Place, blocks, in_order
from penstock.spark.sink.numbers import Numbers, Task

HERE = Place("a", "a")
Row = dict[str, Any]
TYPES = {
    "value": pa.binary(),
    "key": pa.string(),
    "topic": pa.string(),
    "mqtt_topic": pa.string(),
    "tags": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "qos": pa.int8(),
    "retain": pa.bool_(),
    "queue": pa.int32(),
    "born_timestamp": pa.timestamp("us", tz="UTC"),
}


def batches_of(rows: Sequence[Row], sizes: Sequence[int] = ()) -> list[pa.RecordBatch]:
    """The rows in batches of these sizes, the rest in one."""
    names = [name for name in TYPES if name in rows[0]] if rows else ["value"]
    made, at = [], 0
    for size in (*sizes, len(rows)):
        part = rows[at : at + size]
        arrays = [pa.array([row[name] for row in part], TYPES[name]) for name in names]
        made.append(pa.RecordBatch.from_arrays(arrays, names=names))
        at += len(part)
    return made


def packed(
    batches: list[pa.RecordBatch], topic: str = "t", place: Any = None, is_runs: bool = True, **how: Any
) -> list[Packed]:
    packing = Packing(topic, Numbers(Task("q", 0, 0)), place or (lambda common, block: HERE), is_runs=is_runs)
    return [one for block in blocks(batches) for one in packing.requests(block, 1000, **how)]


def messages_of(requests: list[Packed]) -> list[ReceivedMessage]:
    found = []
    for request in requests:
        count = 0
        if request.is_runs:
            for run in decode_runs(request.body):
                for at in range(len(run.bodies)):
                    found.append(decode_message(record_of(run.of(run.bodies[at : at + 1], at))))
                    count += 1
        else:
            at = 0
            while at < len(request.body):
                size = int.from_bytes(request.body[at : at + 4], "big")
                found.append(decode_message(request.body[at : at + size]))
                at, count = at + size, count + 1
        assert count == request.messages
    return found


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "value": st.binary(max_size=3),
            "key": st.sampled_from([None, "", "k1", "k2"]),
            "topic": st.sampled_from(["t", "u"]),
            "tags": st.sampled_from([None, "x"]),
            "properties": st.sampled_from([None, (), (("site", "Kiel"),), (("site", "Kiel"), ("line", "7"))]),
            "retain": st.booleans(),
            "queue": st.sampled_from([None, 1]),
        }
    ),
    max_size=40,
)


def said(row: Row) -> tuple[Any, ...]:
    key = row["key"] or ""
    return (
        row["topic"],
        key,
        row["tags"] or "",
        tuple(row["properties"] or ()),
        row["retain"],
        row["queue"],
        row["value"],
    )


def told(message: ReceivedMessage) -> tuple[Any, ...]:
    own = tuple((name, value) for name, value in message.properties.items())
    queue = message.queue.number if message.queue.number < 9 else None
    retain = bool(message.retain)
    return (message.topic, message.key, message.tag, own, retain, queue, message.body)


@settings(max_examples=40)
@given(ROWS, st.lists(st.integers(0, 9), max_size=5), st.booleans())
def test_each_row_is_one_message_with_all_that_it_says(rows: list[Row], sizes: list[int], by_content: bool) -> None:
    requests = packed(batches_of(rows, sizes), "", by_content=by_content)
    assert requests == packed(batches_of(rows), "", by_content=by_content)  # however Spark hands them over
    messages = messages_of(requests)
    assert sorted(map(told, messages), key=repr) == sorted(map(said, rows), key=repr)
    for way in {(one.topic, one.queue.number < 9) for one in messages}:
        mine = [one for one in messages if (one.topic, one.queue.number < 9) == way]
        for kind in {told(one)[:-1] for one in mine if one.key}:  # one key's rows of a kind keep their order
            assert [one.body for one in mine if told(one)[:-1] == kind] == [
                row["value"] for row in rows if said(row)[:-1] == kind
            ]
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for one in messages:
        numbers[one.topic, one.id[:-12]].append(int(one.id[-12:], 16))
    assert all(sorted(some) == list(range(len(some))) for some in numbers.values())
    runs = [run for one in requests if one.is_runs for run in decode_runs(one.body)]
    assert all(run.flag & FLAG_SEQUENCED for run in runs)


@settings(max_examples=40)
@given(ROWS, st.randoms(use_true_random=False))
def test_rows_of_one_block_are_known_again_in_any_order(rows: list[Row], chance: random.Random) -> None:
    def known(some: list[Row]) -> set[tuple[str, Any]]:
        return {(one.id, told(one)) for one in messages_of(packed(batches_of(some), "", by_content=True))}

    shuffled = rows[:]
    chance.shuffle(shuffled)
    assert known(shuffled) == known(rows)


def test_sorted_rows_are_the_same_in_whatever_order_they_came() -> None:
    rows = [{"value": b"%d" % (at % 4999), "key": str(at % 7)} for at in range(2 * BLOCK_ROWS + 5)]
    shuffled = random.Random(3).sample(rows, len(rows))
    assert packed(list(in_order(batches_of(shuffled)))) == packed(list(in_order(batches_of(rows))))
    assert list(in_order([])) == []


@settings(max_examples=20)
@given(ROWS)
def test_whole_records_say_what_runs_say(rows: list[Row]) -> None:
    def known(requests: list[Packed]) -> set[tuple[Any, ...]]:
        return {told(one) for one in messages_of(requests)}

    assert known(packed(batches_of(rows), "", is_runs=False)) == known(packed(batches_of(rows), ""))


def test_rows_without_a_key_become_long_runs() -> None:
    rows = [{"value": b"x" * (at % 3)} for at in range(BLOCK_ROWS)]
    (request,) = packed(batches_of(rows))
    assert [len(run.bodies) for run in decode_runs(request.body)] == [1366, 1365, 1365]


def test_large_rows_are_cut_into_requests_of_about_a_mebibyte() -> None:
    rows = [{"value": bytes(size)} for size in (BLOCK_BYTES // 2, BLOCK_BYTES // 2, 1, BODY_BYTES_MAX, 1)]
    requests = packed(batches_of(rows))
    assert [one.messages for one in requests] == [1, 2, 1, 1]
    with pytest.raises(TooLarge, match="a value has at most"):
        packed(batches_of([{"value": bytes(BODY_BYTES_MAX + 1)}]))


def test_rows_go_where_their_kind_belongs() -> None:
    rows = [{"value": b"%d" % at, "key": str(at % 2)} for at in range(10)]
    requests = packed(batches_of(rows), place=lambda common, block: Place("ab"[int(common.key)], "a,b"))
    assert {one.broker: one.messages for one in requests} == {"a": 5, "b": 5}


def test_flags_names_and_births_are_taken() -> None:
    born = datetime(2026, 1, 2, tzinfo=UTC)
    row = {"value": b"v", "mqtt_topic": "site/d1/set", "qos": 2, "retain": True, "born_timestamp": born}
    (message,) = messages_of(packed(batches_of([row]), ""))
    assert (message.topic, message.name, message.qos, message.key) == ("site", "site/d1/set", 2, "site/d1/set")
    assert message.retain
    assert message.born_ms == born.timestamp() * 1000
    (other,) = messages_of(packed(batches_of([row | {"born_timestamp": None, "retain": None, "qos": None}])))
    assert (other.topic, other.born_ms, other.qos, bool(other.retain)) == ("t", 1000, 1, False)


def test_a_copy_leaves_out_what_a_message_gets_anew() -> None:
    row = {"value": b"v", "properties": (("KEYS", "k"), ("UNIQ_KEY", "1-2"), ("site", "Kiel"))}
    (message,) = messages_of(packed(batches_of([row])))
    assert dict(message.properties) == {"site": "Kiel"}


@pytest.mark.parametrize(
    ("row", "kind", "words"),
    [
        ({"topic": None}, InvalidMessage, "neither a topic nor an mqtt_topic"),
        ({"topic": "a/b"}, PenstockError, "its first level"),
        ({"topic": "t", "qos": 3}, InvalidMessage, "qos is 0, 1 or 2, not 3"),
        ({"topic": "t", "queue": -1}, InvalidMessage, "a number from 0 on, not -1"),
        ({"mqtt_topic": "$SYS/x"}, PenstockError, "only gateways"),
    ],
)
def test_a_row_that_is_no_message_ends_the_task(row: Row, kind: type[PenstockError], words: str) -> None:
    with pytest.raises(kind, match=words.replace("$", r"\$")):
        packed(batches_of([{"value": b""} | row]), "")
