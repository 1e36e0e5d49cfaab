"""Batches with what their payloads say; tests/spark/test_decoders_in_spark.py has the rest."""

from __future__ import annotations

import pyarrow as pa

from penstock.spark.decoders.formats import format_of
from penstock.spark.decoders.frames import added_schema, decoded_batch


def test_a_batch_keeps_its_columns_and_gets_what_its_payloads_say() -> None:
    how = format_of("json", "a INT")
    batch = pa.RecordBatch.from_pydict({"offset": [1, 2], "value": [b'{"a":1}', b"?"]})
    schema = pa.schema([("offset", pa.int64()), *added_schema(how)])
    found = decoded_batch(batch, how, "value", ["offset"], schema).to_pylist()
    assert found[0] == {"offset": 1, "data": {"a": 1}, "error": None, "payload": None}
    assert (found[1]["offset"], found[1]["data"], found[1]["payload"]) == (2, None, b"?")
    assert found[1]["error"].startswith("no JSON")
