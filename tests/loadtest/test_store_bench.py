"""The store's own bench measures what it says."""

from __future__ import annotations

import re
import sys

import pytest

from loadtest import store_bench


def test_it_prints_append_and_read_beside_the_plain_calls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["store_bench", "--batch", "2", "--body", "16"])
    monkeypatch.setattr(store_bench, "ROUNDS", 3)
    store_bench.main()
    append, read = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"append [\d.]+ us per record, plain pwrite [\d.]+ us, ratio \d+%", append)
    assert re.fullmatch(r"read +[\d.]+ us per record", read)


def test_a_batch_has_a_record_for_each_device() -> None:
    batch = store_bench.device_batch(10, 64)
    assert len({one.properties for one in batch}) == 10
    assert {one.queue_id for one in batch} == set(range(8))
    assert all(one.in_cache for one in batch)
