"""Which folder a batch reads and writes; that a state survives is in tests/spark/test_jobs_in_spark.py."""

from __future__ import annotations

from typing import Any

from penstock.telemetry.slots import StateSlots


class Written:
    """A table that says where it is written."""

    def __init__(self) -> None:
        self.folders: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return self if name == "write" else lambda *_, **__: self

    def parquet(self, folder: str) -> None:
        self.folders.append(folder)


def test_a_batch_never_writes_over_what_it_was_made_from(monkeypatch: Any) -> None:
    from pyspark.sql import functions

    monkeypatch.setattr(functions, "lit", lambda value: Written())
    state: Any = Written()
    slots = StateSlots(state, "/there/", "x int")
    for batch in (0, 1, 1, 2):
        slots.write(state, batch)
    assert state.folders == ["/there/0", "/there/1", "/there/1", "/there/0"]
    assert slots.before(0) is None
