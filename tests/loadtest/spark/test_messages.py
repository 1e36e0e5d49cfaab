from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.spark.messages import BATCH, BEGIN_MS, BODY_BYTES, DEVICES, QUEUES, WINDOW_MS, body, groups, write_parquet


def test_bodies_are_json_of_200_bytes_of_devices_in_turn() -> None:
    bodies = [body(number) for number in (*range(2 * DEVICES), 1_999_999)]
    assert {len(one) for one in bodies} == {BODY_BYTES}
    parsed = [json.loads(one) for one in bodies]
    assert len({one["device"] for one in parsed[:DEVICES]}) == DEVICES
    assert [one["time"] for one in parsed[:3]] == [BEGIN_MS, BEGIN_MS + 1, BEGIN_MS + 2]


@pytest.mark.parametrize("count", [1, 999, 1000, 10_000, 10_001, 25_000])
def test_groups_are_the_pairs_of_window_and_device(count: int) -> None:
    parsed = [json.loads(body(number)) for number in range(count)]
    assert groups(count) == len({(one["time"] // WINDOW_MS, one["device"]) for one in parsed})


def test_parquet_has_each_message_once_and_the_batches_of_each_queue_in_order(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    count = 3 * QUEUES * BATCH + 7
    write_parquet(tmp_path / "rows", count)
    files = sorted((tmp_path / "rows").iterdir())
    assert len(files) == QUEUES
    tables = [parquet.read_table(file).to_pydict() for file in files]
    assert sorted(one for table in tables for one in table["value"]) == sorted(body(number) for number in range(count))
    assert tables[1]["value"][:BATCH] == [body(number) for number in range(BATCH, 2 * BATCH)]
    assert set(tables[1]["partition"]) == {1}
