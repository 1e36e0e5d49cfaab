from __future__ import annotations

import json

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import InvalidConfig
from penstock.spark.columns import BASE, COLUMNS
from penstock.spark.tables import asked, chosen, is_creating, keep, kept, spark_types

CREATING = {
    "provider": "penstock",
    "owner": "root",
    "subscribe": "a",
    "option.subscribe": "a",
    "option.columns": "value",
}


def test_of_what_a_catalog_adds_only_the_options_are_taken() -> None:
    assert is_creating(CREATING)
    assert asked(CREATING) == {"subscribe": "a", "columns": "value"}
    assert not is_creating({"subscribe": "a"})
    assert asked({"subscribe": "a"}) == {"subscribe": "a"}


def test_a_schema_carries_options_through_what_a_catalog_stores() -> None:
    schema = keep(spark_types(BASE), {"subscribe": "a", "servers": "h:1"})
    stored = StructType.fromJson(json.loads(schema.json()))
    assert kept(stored) == {"subscribe": "a", "servers": "h:1"}
    assert stored.names == list(BASE)
    assert kept(spark_types(BASE)) == {}
    assert kept(None) == {}


def test_every_column_has_a_type_of_spark() -> None:
    assert spark_types(tuple(COLUMNS)).names == list(COLUMNS)
    assert spark_types(("offset", "value", "properties", "timestamp")).simpleString() == (
        "struct<offset:bigint,value:binary,properties:map<string,string>,timestamp:timestamp>"
    )
    assert spark_types((), "readings").names[:4] == ["device", "metric", "event_time", "value"]


def test_a_schema_chooses_columns_as_the_option_does() -> None:
    assert chosen(spark_types(("qos", "value")), BASE) == ("qos", "value")
    assert chosen(None, BASE) == BASE
    assert chosen(spark_types((), "readings"), ("value",), "readings") == ("value",)


@pytest.mark.parametrize(
    ("name", "payload", "said"),
    [
        ("value", "raw", "value is BINARY, not STRING"),
        ("colour", "raw", "there is no column 'colour'"),
        ("value", "readings", "readings have the columns device STRING"),
    ],
)
def test_a_schema_of_other_columns_is_an_error_that_says_which(name: str, payload: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        chosen(StructType([StructField(name, StringType())]), BASE, payload)
