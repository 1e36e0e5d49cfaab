from __future__ import annotations

import os
from typing import Any

import pytest
from stored_queues import StoredQueues, rows_of

from penstock.errors import Busy, Damaged, InvalidRequest, LogReplaced, OffsetOutOfRange, Unavailable
from penstock.protocol.message import Message
from penstock.protocol.requests.messages import Pull
from penstock.spark.fetch import links_of, read_ranges
from penstock.spark.options import SourceOptions, parse
from penstock.spark.planning import Range


def options(**given: str) -> SourceOptions:
    return parse({"subscribe": "t", "fetchOffset.retryIntervalMs": "0", "brokerPatienceMs": "0"} | given, stream=True)


def wanted(queues: Any, queue: int, start: int, end: int) -> Range:
    return Range(queues.address, "t", "broker-a", queue, start, end)


def offsets(batches: Any) -> list[tuple[int, int]]:
    return [(row["queue"], row["offset"]) for row in rows_of(batches)]


def test_each_offset_of_each_range_is_read_once_and_in_order(queues: Any) -> None:
    queues.put("t", 0, 10)
    queues.put("t", 1, 10)
    found = read_ranges([wanted(queues, 0, 2, 5), wanted(queues, 1, 0, 10)], options(batchRows="4"))
    assert offsets(found) == [(0, 2), (0, 3), (0, 4), *[(1, at) for at in range(10)]]


def test_the_next_pull_is_on_its_way_while_a_batch_is_used(queues: Any) -> None:
    queues.put("t", 0, 9)
    found = read_ranges([wanted(queues, 0, 0, 9)], options(batchRows="3"))
    next(found)
    next(found)
    assert queues.pulls(3) == [0, 3, 6]
    found.close()


def test_what_came_after_the_range_is_not_read(queues: Any) -> None:
    queues.put("t", 0, 100)
    assert offsets(read_ranges([wanted(queues, 0, 0, 7)], options())) == [(0, at) for at in range(7)]
    assert max(one.offset + one.count_max for one in queues.asked if isinstance(one, Pull)) == 7


def test_a_broker_that_is_busy_is_asked_again(queues: Any) -> None:
    queues.put("t", 0, 6)
    queues.errors = [Busy("not now"), Unavailable("starting")]
    assert len(rows_of(read_ranges([wanted(queues, 0, 0, 6)], options(batchRows="2")))) == 6


def test_a_broker_that_stays_busy_ends_the_read(queues: Any) -> None:
    queues.put("t", 0, 6)
    queues.errors = [Busy("not now")] * 3
    with pytest.raises(Busy):
        rows_of(read_ranges([wanted(queues, 0, 0, 6)], options(**{"fetchOffset.numRetries": "2"})))
    assert queues.errors == []


def test_a_refusal_is_not_repeated(queues: Any) -> None:
    queues.put("t", 0, 6)
    queues.errors = [InvalidRequest("no"), InvalidRequest("still no")]
    with pytest.raises(InvalidRequest, match=r"^no$"):
        rows_of(read_ranges([wanted(queues, 0, 0, 6)], options()))


def test_a_read_that_was_given_up_leaves_nothing_for_the_next(queues: Any) -> None:
    queues.put("t", 0, 6)
    given_up = read_ranges([wanted(queues, 0, 0, 6)], options(batchRows="2"))
    next(given_up)
    given_up.close()
    assert links_of(os.getpid())[queues.address].fileno() == -1  # the reply that was under way is thrown away
    assert offsets(read_ranges([wanted(queues, 0, 3, 6)], options(batchRows="2"))) == [(0, 3), (0, 4), (0, 5)]


def test_retention_within_a_read_is_data_loss(queues: Any) -> None:
    queues.put("t", 0, 9)
    found = read_ranges([wanted(queues, 0, 0, 9)], options(batchRows="3"))
    next(found)  # the pull from 3 on is under way or answered
    queues.remove_before("t", 0, 8)
    with pytest.raises(OffsetOutOfRange) as raised:
        rows_of(found)
    assert "longer retention" in raised.value.hint
    assert "failOnDataLoss" not in raised.value.hint


def test_with_loss_accepted_a_read_goes_on_behind_what_retention_removed(queues: Any) -> None:
    queues.put("t", 0, 9)
    queues.remove_before("t", 0, 4)
    found = read_ranges([wanted(queues, 0, 0, 9)], options(failOnDataLoss="false"))
    assert offsets(found) == [(0, at) for at in range(4, 9)]


def test_a_range_whose_last_offset_is_gone_too_is_empty_with_loss_accepted(queues: Any) -> None:
    queues.put("t", 0, 9)
    queues.remove_before("t", 0, 7)
    assert offsets(read_ranges([wanted(queues, 0, 0, 5)], options(failOnDataLoss="false"))) == []


def test_a_queue_that_lost_its_end_is_data_loss_and_no_endless_loop(queues: Any) -> None:
    queues.put("t", 0, 3)
    with pytest.raises(OffsetOutOfRange, match="ends at 3"):
        rows_of(read_ranges([wanted(queues, 0, 0, 5)], options()))


def test_damaged_messages_end_the_read_or_are_left_out_as_told(queues: Any) -> None:
    queues.put("t", 0, 5)
    queues.topics["t"][0].damaged = {1, 2}
    with pytest.raises(Damaged, match="2 messages of t:0"):
        rows_of(read_ranges([wanted(queues, 0, 0, 5)], options()))
    found = read_ranges([wanted(queues, 0, 0, 5)], options(failOnDataLoss="false"))
    assert offsets(found) == [(0, 0), (0, 3), (0, 4)]


def test_readings_come_decoded(queues: Any) -> None:
    queues.put("t", 0, [Message("t", b'{"value": 2.5}', mqtt_topic="t/dev-1/temp"), Message("t", b"null")])
    rows = rows_of(read_ranges([wanted(queues, 0, 0, 2)], options(payload="readings")))
    assert [(row["device"], row["metric"], row["value"], row["offset"]) for row in rows] == [
        ("dev-1", "temp", 2.5, 0),
        ("", "", None, 1),
    ]
    assert rows[1]["error"]


def test_a_range_of_another_log_is_data_loss_or_left_out(queues: Any, caplog: pytest.LogCaptureFixture) -> None:
    queues.put("t", 0, 9)
    what = wanted(queues, 0, 2, 5)._replace(log_id="log-0")
    with pytest.raises(LogReplaced) as raised:
        rows_of(read_ranges([what], options()))
    assert "failOnDataLoss" not in str(raised.value)
    assert offsets(read_ranges([what], options(failOnDataLoss="false"))) == []
    assert "offsets 2 to 5 are left out" in caplog.text
    assert offsets(read_ranges([what._replace(log_id="log-1")], options())) == [(0, 2), (0, 3), (0, 4)]


def test_a_worker_that_cannot_reach_a_broker_says_from_where_which_address_and_why(unused_address: str) -> None:
    what = Range(unused_address, "t", "broker-a", 0, 0, 5)
    with pytest.raises(Unavailable) as raised:
        rows_of(read_ranges([what], options(servers=unused_address, **{"fetchOffset.numRetries": "1"})))
    said = raised.value.message
    assert said.startswith("Spark's worker on ")
    assert said.endswith(f" cannot read from broker broker-a at {unused_address}: connection refused")
    assert "`advertise`" in raised.value.hint


def test_a_broker_that_is_back_at_another_address_is_found_there(queues: Any, unused_address: str) -> None:
    queues.put("t", 0, 5)
    what = wanted(queues, 0, 0, 5)._replace(address=unused_address)
    found = read_ranges([what], options(servers=queues.address, **{"fetchOffset.numRetries": "1"}))
    assert offsets(found) == [(0, at) for at in range(5)]


def test_where_a_node_is_gone_the_next_copy_of_its_log_is_read(queues: Any, unused_address: str) -> None:
    queues.put("t", 0, 5)
    queues.leader = unused_address
    what = wanted(queues, 0, 0, 5)._replace(address=unused_address)
    found = read_ranges([what], options(servers=queues.address, **{"fetchOffset.numRetries": "1"}))
    assert offsets(found) == [(0, at) for at in range(5)]


@pytest.fixture
def copy(queues: Any, serve: Any) -> Any:
    """A copy of the queue ``t:0``, which has ten messages, that lacks the last four and has damaged one."""
    queues.put("t", 0, 10)
    lagging = StoredQueues()
    lagging.put("t", 0, 6)
    lagging.topics["t"][0].damaged.add(4)
    lagging.address = serve(lagging.open_session).address
    return lagging


def test_a_range_is_read_at_a_copy_and_what_that_lacks_at_its_leader(queues: Any, copy: Any) -> None:
    what = wanted(queues, 0, 0, 10)._replace(address=copy.address, leader=queues.address)
    assert offsets(read_ranges([what], options(batchRows="2"))) == [(0, at) for at in range(10)]
    assert copy.pulls(3) == [0, 2, 4]
    assert queues.pulls(3) == [4, 6, 8]


def test_what_the_leader_lacks_too_is_lost(queues: Any, copy: Any) -> None:
    for one in (queues, copy):
        one.remove_before("t", 0, 3)
    what = wanted(queues, 0, 0, 10)._replace(address=copy.address, leader=queues.address)
    with pytest.raises(OffsetOutOfRange):
        rows_of(read_ranges([what], options()))
    assert offsets(read_ranges([what], options(failOnDataLoss="false"))) == [(0, at) for at in range(3, 10)]
