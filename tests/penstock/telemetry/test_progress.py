"""Sums over Spark's reports, as Spark writes them."""

from __future__ import annotations

from typing import Any

from penstock.telemetry.progress import Progress, show


def report(batch: int, rows: int, latest: Any, end: Any, dropped: int = 0) -> dict[str, Any]:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "sources": [{"latestOffset": latest, "endOffset": end}],
        "stateOperators": [{"numRowsDroppedByWatermark": dropped}],
    }


def test_reports_are_counted_once_and_the_last_one_says_the_lag() -> None:
    progress = Progress()
    first = report(0, 10, {"a": {"b:0": 15, "b:1": 5}, "@logs": {"b": "id"}}, {"a": {"b:0": 10}})
    progress.add([first])
    progress.add([first, report(1, 7, '{"a": {"b:0": 20}}', '{"a": {"b:0": 17}}', dropped=2)])
    assert (progress.rows, progress.lag, progress.late, progress.batches) == (17, 3, 2, 2)
    assert progress.text == "17 rows read in 2 batches, 3 to go, 2 late"
    progress.add([report(2, 0, None, None)])
    assert progress.text == "17 rows read in 3 batches, 0 to go, 2 late"


def test_nothing_is_drawn_where_there_is_no_terminal(capsys: Any) -> None:
    with show("Spark starts") as line:
        line.update("more")
    assert capsys.readouterr() == ("", "")
