"""Options and columns of a write."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidConfig, PenstockError
from penstock.spark.sink.options import COLUMNS, PASSED_OVER, SinkOptions, check_columns, parse


def test_options_have_kafkas_names_in_any_case() -> None:
    assert parse({}, stream=True) == SinkOptions()
    given = {"KAFKA.bootstrap.servers": "a:1,b:2", "Topic": "température", "writeid": "w", "brokerPatienceMs": "1500"}
    options = parse(given | {"rowOrder": "sorted", "checkpointLocation": "/c"}, stream=False)
    assert options == SinkOptions(("a:1", "b:2"), "temp%C3%A9rature", "w", is_sorted=True, patience_s=1.5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topc": "t"}, "did you mean topic?"),
        ({"subscribe": "t"}, "a write has no option 'subscribe'"),
        ({"topic": " "}, "topic is empty"),
        ({"topic": "a/b"}, "its first level"),
        ({"path": "t"}, "take no path here"),
        ({"writeId": "w"}, "known by its checkpoint"),
        ({"writeBatch": "1"}, "known by its checkpoint"),
        ({"rowOrder": "random"}, "given or sorted"),
        ({"brokerPatienceMs": "long"}, "a number from 0 on"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(PenstockError) as raised:
        parse(given, stream=True)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": "string"}, "has a column value"),
        ({"value": "double"}, "BINARY or STRING, not DOUBLE"),
        ({"value": "string", "mqtt_topc": "string"}, "did you mean mqtt_topic?"),
        ({"value": "string", "colour": "string"}, "no message has a column 'colour'"),
        ({"value": "string", "queue": "int", "partition": "int"}, "keep one"),
        ({"value": "string"}, "no topic: nothing was written"),
    ],
)
def test_rows_that_are_no_messages_are_refused(columns: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        check_columns(columns, SinkOptions())
    assert said in str(raised.value)


def test_a_batchs_number_needs_the_name_of_what_it_counts() -> None:
    assert parse({"writeId": "w", "writeBatch": "3"}, stream=False) == SinkOptions(write_id="w", write_batch=3)
    with pytest.raises(InvalidConfig, match="which is missing"):
        parse({"writeBatch": "3"}, stream=False)


def test_the_topic_is_an_option_or_a_column_or_follows_from_the_mqtt_name() -> None:
    check_columns({"value": "string"}, SinkOptions(topic="t"))
    check_columns({"value": "binary", "topic": "string"}, SinkOptions())
    check_columns({"value": "binary", "mqtt_topic": "string"}, SinkOptions())


def test_what_was_read_can_be_written() -> None:
    from penstock.spark.columns import COLUMNS as READ

    assert [name for name in READ if name not in COLUMNS and name not in PASSED_OVER] == []
