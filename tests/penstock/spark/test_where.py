from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidConfig
from penstock.protocol.message import Message, decode_message, encode_message
from penstock.protocol.selectors.compiling import selector_of
from penstock.spark.conditions import Condition
from penstock.spark.offsets import QueueKey
from penstock.spark.where import END, holds, where_of

DAY_MS = 1_767_225_600_000  # 2026-01-01


def test_conditions_on_topic_queue_and_broker_choose_queues() -> None:
    where = where_of("topic LIKE 'pl_nt%' AND partition IN (0, 1) AND broker <> 'b' AND queue < 1")
    keys = [QueueKey("plant", "a", 0), QueueKey("plant2", "a", 1), QueueKey("plt", "a", 0), QueueKey("plant", "b", 0)]
    assert [where.reads(key) for key in keys] == [True, False, False, False]
    assert not where_of("topic IS NULL").reads(keys[0])
    assert where_of("topic NOT IN ('x')").reads(keys[0])


@pytest.mark.parametrize(
    ("text", "stretch"),
    [
        ("offset = 4", (4, 5)),
        ("offset > 4", (5, END)),
        ("offset <= 4", (0, 5)),
        ("offset BETWEEN 2 AND 4 AND offset < 4", (2, 4)),
        ("offset > 4 AND offset < 3", (0, 0)),
    ],
)
def test_conditions_on_offsets_are_a_stretch(text: str, stretch: tuple[int, int]) -> None:
    where = where_of(text)
    assert where.offsets == stretch
    assert where.has_ends


@pytest.mark.parametrize(
    ("text", "stretch"),
    [
        ("timestamp >= '2026-01-01'", (DAY_MS, END)),
        ("timestamp > TIMESTAMP '2026-01-01 00:00:00.000'", (DAY_MS + 1, END)),
        ("timestamp < '2026-01-01T01:00:00+01:00'", (0, DAY_MS)),
        ("timestamp = '2026-01-01'", (DAY_MS, DAY_MS + 1)),
        ("timestamp = '2026-01-01 00:00:00.000001'", (0, 0)),
        ("timestamp > '2026-01-01 00:00:00.000001'", (DAY_MS + 1, END)),
        ("timestamp >= '2026-01-01 00:00:00.000001'", (DAY_MS + 1, END)),
        ("timestamp < '2026-01-01 00:00:00.000001'", (0, DAY_MS + 1)),
        ("timestamp <= '2026-01-01 00:00:00.000001'", (0, DAY_MS + 1)),
    ],
)
def test_conditions_on_times_are_a_stretch_of_whole_milliseconds(text: str, stretch: tuple[int, int]) -> None:
    assert where_of(text).times == stretch


PATTERNS = st.sampled_from(("t%", "%a", "_", "%", "a\\_b", "%\\%"))
TEXTS = st.sampled_from(("a", "t", "t/a", "it's", "100%", "a_b", "ü", "back\\slash", "\x01odd"))
NAMED = st.none() | TEXTS
CONDITIONS = st.one_of(
    st.tuples(st.sampled_from(("=", "<>", "LIKE")), st.lists(TEXTS, min_size=1, max_size=1), st.just(False)),
    st.tuples(st.just("LIKE"), st.lists(PATTERNS, min_size=1, max_size=1), st.booleans()),
    st.tuples(st.just("IN"), st.lists(TEXTS, min_size=1, max_size=3), st.booleans()),
    st.tuples(st.just("IS NULL"), st.just([]), st.booleans()),
)


@given(column=st.sampled_from(("mqtt_topic", "tags", "key", "properties['p']")), told=CONDITIONS, value=NAMED)
def test_a_selector_wants_what_sql_would_leave(
    column: str, told: tuple[str, list[str], bool], value: str | None
) -> None:
    word, values, negated = told
    if column == "key" and word == "LIKE":
        return
    if column != "key" and "\x01" in f"{value}":
        value = "x"
    fields: dict[str, Any] = {"mqtt_topic": {"mqtt_topic": value}, "tags": {"tag": value}, "key": {"key": value}}.get(
        column, {"properties": {"p": value}}
    )
    fields = {name: one for name, one in fields.items() if value is not None and one != {"p": None}}
    record = encode_message(Message("t", b"", **fields))
    raw = record[record.index(b"t", 88) + 3 :]
    quoted = ", ".join("'" + one.replace("'", "''") + "'" for one in values)
    test = {"IN": f"IN ({quoted})", "IS NULL": "IS NULL"}.get(word, f"{word} {quoted}")
    test = test.replace("IS NULL", "IS NOT NULL") if negated and word == "IS NULL" else ("NOT " * negated + test)
    one = Condition(column, word, tuple(values), negated)
    seen = "t" if column == "mqtt_topic" and value is None else value
    expected = (word == "IS NULL" and not negated) if seen is None else holds(one, seen)
    selector = where_of(f"{column} {test}").selector("t")
    assert selector_of(selector).matches(raw) == expected, (selector, decode_message(record))


def test_a_selector_of_the_users_is_kept_beside_the_conditions() -> None:
    where = where_of("tags = 'a' AND topic = 't'")
    assert where.selector("t", "x = 1 OR y = 2") == "(x = 1 OR y = 2) AND TAGS = 'a'"
    assert where_of("topic = 't'").selector("t", "x = 1") == "x = 1"
    assert where.tags == ("a",)
    assert where_of("tags <> 'a'").tags == ()


@pytest.mark.parametrize(
    ("text", "queue", "read"),
    [
        ("offset >= 1", (0, 0), (0, 0)),  # an empty queue has nothing that is lost
        ("offset >= 7", (2, 5), (5, 5)),
        ("offset BETWEEN 3 AND 9", (2, 5), (3, 5)),
        ("offset < 2", (2, 5), (2, 2)),
        ("offset = 3", (2, 5), (3, 4)),
        ("offset >= 1", (6, 5), (6, 6)),  # beyond the end without the condition: that is an error later
    ],
)
def test_conditions_on_offsets_leave_what_a_queue_has(text: str, queue: tuple[int, int], read: tuple[int, int]) -> None:
    assert where_of(text).between(*queue) == read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("value = 'x'", "value is no column that the broker knows"),
        ("offset = 'x'", "offset is compared with numbers"),
        ("offset IN (1, 2)", "offset is compared by = < <= > >= BETWEEN"),
        ("queue LIKE 'x'", "queue is compared with numbers"),
        ("topic > 'x'", "topic is compared by = <> IN LIKE"),
        ("timestamp > 5", "5 is no time"),
        ("timestamp > 'soon'", "'soon' is no time"),
        ("tags > 'x'", "tags is compared with strings"),
        ("key LIKE 'x%'", "key is compared by"),
        ("properties['a b'] = 'x'", "where: "),
        (f"tags = '{'x' * 2000}'", "where: "),
    ],
)
def test_what_cannot_be_told_exactly_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        where_of(text)
