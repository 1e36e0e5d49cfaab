from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import InvalidConfig
from penstock.spark.offsets import QueueLag
from penstock.spark.progress import LagListener, QueryLag, lag_of


def told(end: Any, latest: Any, **more: Any) -> dict[str, Any]:
    source = {"description": "x", "endOffset": end, "latestOffset": latest, "numInputRows": 3}
    return {"id": "q1", "name": "n", "batchId": 7, "processedRowsPerSecond": 2.5, "sources": [source]} | more


ENDS = {"t": {"broker-a:0": 4, "broker-b:1": 2}, "@logs": {"broker-a": "log-1"}}
LATEST = {"t": {"broker-a:0": 9, "broker-b:1": 2}, "@logs": {"broker-a": "log-1"}}


def test_lag_is_what_a_querys_progress_says_of_each_queue() -> None:
    found = lag_of(told(ENDS, LATEST))
    assert found == QueryLag(
        "q1", "n", 7, 3, 2.5, (QueueLag("t", "broker-a", 0, 4, 9), QueueLag("t", "broker-b", 1, 2, 2))
    )
    assert [one.lag for one in found.queues] == [5, 0]
    assert found.lag == 5
    assert lag_of(told(json.dumps(ENDS), json.dumps(LATEST))) == found


def test_other_sources_and_queries_that_have_read_nothing_have_no_queues() -> None:
    for other in (None, "17", {"logOffset": 3}, {"a": {"0": 5}}, "no json"):
        assert lag_of(told(other, None)).queues == ()


def test_a_query_without_progress_says_so() -> None:
    with pytest.raises(InvalidConfig, match="no progress yet"):
        lag_of(None)


def test_a_listener_keeps_the_last_word_of_each_query_until_it_ends() -> None:
    heard: list[QueryLag] = []
    listener = LagListener(heard.append)
    progress = SimpleNamespace(json=json.dumps(told(ENDS, LATEST)))
    listener.onQueryProgress(SimpleNamespace(progress=progress))  # type: ignore[arg-type]
    assert listener.queries == {"q1": heard[0]}
    listener.onQueryTerminated(SimpleNamespace(id="q1"))  # type: ignore[arg-type]
    assert listener.queries == {}
