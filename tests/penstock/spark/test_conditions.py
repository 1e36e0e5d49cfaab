from __future__ import annotations

import pytest

from penstock.errors import InvalidConfig
from penstock.spark.conditions import Condition, read_conditions


def test_conditions_are_columns_comparisons_and_literals_joined_by_and() -> None:
    text = """topic = 'it''s' AND queue IN (0, -1) and `offset` >= 5 AND tags NOT LIKE 'a%' AND key != X'6b31'
        AND client_id IS NOT NULL AND properties['site'] IS NULL AND timestamp < TIMESTAMP '2026-01-01'"""
    assert read_conditions(text) == (
        Condition("topic", "=", ("it's",)),
        Condition("queue", "IN", (0, -1)),
        Condition("offset", ">=", (5,)),
        Condition("tags", "LIKE", ("a%",), negated=True),
        Condition("key", "<>", (b"k1",)),
        Condition("client_id", "IS NULL", (), negated=True),
        Condition("properties", "IS NULL", (), field="site"),
        Condition("timestamp", "<", ("2026-01-01",)),
    )


def test_between_is_two_conditions() -> None:
    assert read_conditions("offset BETWEEN 2 AND 4 AND queue = 1") == (
        Condition("offset", ">=", (2,)),
        Condition("offset", "<=", (4,)),
        Condition("queue", "=", (1,)),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a column is expected"),
        ("topic", "a comparison is expected"),
        ("topic = ", "a string or a number is expected"),
        ("topic = 'a' OR topic = 'b'", "\"OR topic = 'b'\" cannot be read"),
        ("topic NOT BETWEEN 1 AND 2", "a comparison is expected before 'BETWEEN"),
        ("topic IN 'a'", r"\( is expected"),
        ("offset BETWEEN 1, 2", "AND is expected"),
        ("lower(topic) = 'a'", "a comparison is expected"),
        ("topic = 'a", "cannot be read"),
        ("key = X'6'", "half a byte"),
        ("properties[1 = 'a'", r"\] is expected"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=f"where: .*{said}"):
        read_conditions(text)
