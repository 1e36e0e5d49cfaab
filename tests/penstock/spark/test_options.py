from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import InvalidConfig
from penstock.spark.columns import BASE
from penstock.spark.offsets import EARLIEST, LATEST
from penstock.spark.options import check, columns_of, parse

TOPIC = {"subscribe": "t"}


def test_a_stream_begins_at_the_latest_offsets_and_a_batch_at_the_earliest() -> None:
    assert parse(TOPIC, stream=True).starting.is_only(LATEST)
    assert parse(TOPIC, stream=False).starting.is_only(EARLIEST)


def test_names_count_in_any_case_for_spark_lowers_them() -> None:
    options = parse({"SUBSCRIBE": "a, b,a", "maxoffsetspertrigger": "5", "failondataloss": "FALSE"}, stream=True)
    assert options.topics == ("a", "b")
    assert options.rows_per_trigger == 5
    assert not options.fail_on_data_loss


@pytest.mark.parametrize("name", ["bootstrap.servers", "kafka.bootstrap.servers", "nameServer", "servers"])
def test_the_servers_have_kafkas_name_and_ours(name: str) -> None:
    assert parse(TOPIC | {name: "h:1, i:2"}, stream=True).servers == ("h:1", "i:2")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("startingOfsets", "startingOffsets"),
        ("subscribed", "subscribe"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
    ],
)
def test_a_mistyped_option_is_refused_and_the_nearest_named(typed: str, meant: str) -> None:
    with pytest.raises(InvalidConfig, match="no option") as raised:
        parse(TOPIC | {typed: "earliest"}, stream=True)
    assert meant in raised.value.hint


def test_an_option_that_resembles_none_names_the_page_that_has_them_all() -> None:
    with pytest.raises(InvalidConfig) as raised:
        parse(TOPIC | {"zzz": "1"}, stream=True)
    assert (Path(__file__).parents[3] / raised.value.hint.split()[0]).exists()


def test_options_are_checked_before_it_is_known_whether_a_stream_or_a_batch_has_them() -> None:
    check(TOPIC | {"maxOffsetsPerTrigger": "5"})
    check(TOPIC | {"endingOffsets": "latest"})
    for wrong in ({"startingOffsets": "later"}, {"maxOffsetsPerTrigger": "5", "endingOffsets": "latest"}):
        with pytest.raises(InvalidConfig):
            check(TOPIC | wrong)


def test_a_query_without_options_is_told_of_tables_that_have_lost_theirs() -> None:
    with pytest.raises(InvalidConfig, match="needed, got none") as raised:
        parse({}, stream=False)
    assert "without a list of columns" in raised.value.hint


@pytest.mark.parametrize("given", [{}, {"subscribe": "a", "assign": '{"a":[0]}'}])
def test_exactly_one_way_to_say_what_to_read_is_needed(given: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match="exactly one of"):
        parse(given, stream=True)


def test_offsets_per_queue_are_read_from_json() -> None:
    starting = parse(TOPIC | {"startingOffsets": '{"t":{"0":23,"1":-2}}'}, stream=True).starting
    assert starting.each == {"t": {"0": 23, "1": -2}}
    assert not starting.of_the_moment


@pytest.mark.parametrize("text", ["latest", '{"t":{"0":23,"1":-1}}'])
def test_a_start_that_depends_on_the_moment_is_known(text: str) -> None:
    assert parse(TOPIC | {"startingOffsets": text}, stream=True).starting.of_the_moment


def test_a_time_wins_over_times_per_queue_and_these_over_offsets() -> None:
    given = TOPIC | {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":5}}'}
    assert parse(given, stream=True).starting.each == {"t": {"0": 5}}
    at = parse(given | {"startingTimestamp": "7"}, stream=True).starting
    assert (at.by, at.everywhere) == ("time", 7)
    assert at.of_the_moment


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startingOffsets", "newest"),
        ("startingOffsets", '{"t":{"0":-3}}'),
        ("startingOffsets", '{"t":[0]}'),
        ("startingOffsets", '{"t"'),
        ("startingTimestamp", "yesterday"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-1}}'),
        ("startingOffsetsByTimestampStrategy", "none"),
        ("maxOffsetsPerTrigger", "0"),
        ("minPartitions", "-1"),
        ("failOnDataLoss", "perhaps"),
        ("columns", "key,colour"),
        ("columns", " , "),
        ("payload", "xml"),
        ("servers", "nowhere"),
        ("pollTimeoutMs", "1.5"),
    ],
)
def test_a_bad_value_is_refused_with_the_options_name(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        parse(TOPIC | {name: text}, stream=True)
    assert name in raised.value.message or text in raised.value.message


def test_a_bad_pattern_or_assignment_is_refused() -> None:
    for given in ({"subscribePattern": "("}, {"assign": '{"t":0}'}, {"assign": "[1]"}):
        with pytest.raises(InvalidConfig):
            parse(given, stream=True)


@pytest.mark.parametrize(
    ("given", "stream"),
    [
        ({"endingOffsets": "latest"}, True),
        ({"endingTimestamp": "1"}, True),
        ({"maxOffsetsPerTrigger": "5"}, False),
        ({"startingOffsets": "latest"}, False),
        ({"endingOffsets": "earliest"}, False),
        ({"path": "/data"}, True),
    ],
)
def test_what_makes_no_sense_together_is_refused(given: dict[str, str], stream: bool) -> None:
    with pytest.raises(InvalidConfig):
        parse(TOPIC | given, stream=stream)


def test_columns_are_the_base_unless_chosen() -> None:
    assert columns_of(TOPIC) == BASE
    assert columns_of(TOPIC | {"columns": "offset, value"}) == ("offset", "value")
    assert columns_of(TOPIC | {"includeHeaders": "true"}) == (*BASE, "properties")
    assert columns_of(TOPIC | {"columns": "properties", "includeHeaders": "true"}) == ("properties",)


def test_readings_have_columns_of_their_own() -> None:
    assert parse(TOPIC | {"payload": "readings"}, stream=True).payload == "readings"
    with pytest.raises(InvalidConfig, match="rows are readings"):
        parse(TOPIC | {"payload": "readings", "columns": "key"}, stream=True)


def test_kafkas_login_and_a_slip_of_the_pen_are_refused_and_not_told() -> None:
    with pytest.raises(InvalidConfig, match="would do nothing") as raised:
        parse(TOPIC | {"kafka.sasl.jaas.config": "geheim"}, stream=True)
    assert "geheim" not in str(raised.value)
    with pytest.raises(InvalidConfig, match="no option") as raised:
        parse(TOPIC | {"pasword": "geheim"}, stream=True)
    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize("name", ["minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxTriggerDelay", "group"])
def test_what_is_for_streams_is_refused_for_a_batch(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{name} is for streams"):
        parse(TOPIC | {name: "5"}, stream=False)


def test_the_least_rows_of_a_batch_are_not_above_the_most() -> None:
    with pytest.raises(InvalidConfig, match="is above maxOffsetsPerTrigger"):
        parse(TOPIC | {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, stream=True)


def test_a_prefix_of_groups_is_refused_with_the_option_that_stays_the_same() -> None:
    with pytest.raises(InvalidConfig, match="groupIdPrefix is Kafka's") as raised:
        parse(TOPIC | {"groupIdPrefix": "nightly"}, stream=True)
    assert raised.value.hint.startswith("group names")
