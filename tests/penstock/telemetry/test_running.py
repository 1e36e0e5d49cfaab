"""What is decided of a run before Spark starts, and how rows are told; runs: tests/spark/test_jobs_in_spark.py."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.errors import InvalidConfig
from penstock.telemetry import running
from penstock.telemetry.catalog import job_of
from penstock.telemetry.running import RunOptions


@pytest.mark.parametrize(
    ("out", "checkpoint", "found"),
    [
        ((), "", ""),
        (("/data/",), "", "/data/checkpoint/gaps"),
        (("s3a://bucket/x",), "", "s3a://bucket/x/checkpoint/gaps"),
        (("jdbc:postgresql://h/db", "/data"), "", "/data/checkpoint/gaps"),
        (("jdbc:postgresql://h/db",), "/kept", "/kept"),
        (("topic:x",), "", ""),
        (("delta:s3a://bucket/x",), "", ""),
        (("delta:s3a://bucket/x", "/data"), "", "/data/checkpoint/gaps"),
    ],
)
def test_progress_is_kept_where_it_is_said_or_beside_the_first_folder(
    out: tuple[str, ...], checkpoint: str, found: str
) -> None:
    assert running.checkpoint_of(job_of("gaps"), RunOptions(out=out, checkpoint=checkpoint)) == found


@pytest.mark.parametrize("out", ["topic:a", "mqtt:a/{device}"])
def test_a_job_that_would_read_what_it_writes_is_refused(out: str) -> None:
    with pytest.raises(InvalidConfig, match="would read what it writes"):
        running.outputs_of(job_of("gaps"), RunOptions(topic="b, a", out=(out,), checkpoint="/kept"))


def test_a_pattern_with_a_column_that_the_job_lacks_is_refused_before_spark_starts() -> None:
    given = RunOptions(out=("mqtt:a/{devise}/{metric}",), checkpoint="/kept")
    with pytest.raises(InvalidConfig, match=r"there is no \{devise\}"):
        running.outputs_of(job_of("gaps"), given)
    assert running.outputs_of(job_of("devices"), given), "a registry has columns of its own"
    assert running.outputs_of(job_of("gaps"), RunOptions(out=("mqtt:a/{device}/{metric}",), checkpoint="/kept"))


def test_an_output_that_a_restart_would_fill_twice_needs_a_checkpoint() -> None:
    with pytest.raises(InvalidConfig, match="--checkpoint FOLDER is needed"):
        running.outputs_of(job_of("gaps"), RunOptions(out=("topic:elsewhere",)))


def test_rows_are_told_in_one_order_with_times_as_text() -> None:
    at = datetime(2026, 3, 1, 1, 2, 3, tzinfo=UTC)
    rows = [running.told({"at": at, "device": name, "raw": b"\xff"}) for name in ("b", None, "a")]
    batch = running.batch_of(rows, 4)
    assert [row["device"] for row in batch["rows"]] == [None, "a", "b"]
    assert batch["rows"][0] == {"at": "2026-03-01T01:02:03Z", "device": None, "raw": "\ufffd"}
    assert (batch["batch"], batch["count"]) == (4, 3)
