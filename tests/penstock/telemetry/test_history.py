"""Fields out of payloads and the SQL made of them; queries run in tests/spark/test_history_in_spark.py."""

from __future__ import annotations

import pytest

from penstock.telemetry.history import expressions, fields_of


@pytest.mark.parametrize(
    ("payloads", "fields"),
    [
        ([b'{"a": 1, "b": "x"}', b'{"a": 2.5, "c": true, "b": null}'], {"a": "double", "b": "string", "c": "boolean"}),
        ([b'{"a": [1], "b": {"c": 1}}'], {"a": "string", "b": "string"}),
        ([b'{"a": 1}', b'{"a": "x"}', b'{"A": 1}', b'{"": 1}'], {"a": "string"}),
        ([b'{"a": 9223372036854775808}', b'{"a": null}'], {"a": "double"}),
        ([b'{"a": null}'], {"a": "string"}),
        ([b'{"a": 9}', b'{"a": 10.5}', b'{"a": "err"}'], {"a": "double"}),
        ([b'{"a": 9}', b'{"a": 10}', b'{"a": "err"}', b'{"a": true}'], {"a": "string"}),
        ([b'{"a": true}', b'{"a": true}', b'{"a": 0}'], {"a": "boolean"}),
        ([b"21.5", b"", b"\xff", b"[1]", b"null"], {}),
    ],
)
def test_fields_have_the_type_of_most_of_their_values(payloads: list[bytes], fields: dict[str, str]) -> None:
    assert fields_of(payloads) == fields


def test_a_field_never_hides_a_column_of_the_message() -> None:
    made = expressions({"Queue": "bigint", "device": "string", "site`s": "string", "ts": "bigint"})
    assert [one.rpartition(" AS ")[2] for one in made] == [
        "device",
        "metric",
        "time",
        "value",
        "`field_Queue`",
        "`site``s`",
    ]
