"""The readers are driven here as Spark drives them: offsets in one object, partitions and reads in another."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from stored_queues import STORED_MS, StoredQueues, rows_of

from penstock.errors import BrokerAway, InvalidConfig, LogReplaced, NoRoute, OffsetOutOfRange
from penstock.spark.source import BatchReader, PenstockSource, StreamReader
from penstock.world import Clock

ALL = ReadAllAvailable()


def source(queues: Any, **given: str) -> PenstockSource:
    options = {
        "servers": queues.address,
        "subscribe": "t",
        "fetchOffset.numRetries": "0",
        "brokerPatienceMs": "0",
    } | given
    return PenstockSource(CaseInsensitiveDict(options))


@pytest.fixture
def stream() -> Iterator[Callable[..., StreamReader]]:
    """Makes stream readers, and stops them."""
    made: list[StreamReader] = []

    def make(queues: Any, **given: str) -> StreamReader:
        made.append(source(queues, **given).streamReader(schema=None))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def batch(queues: Any, **given: str) -> BatchReader:
    return source(queues, **given).reader(schema=None)


def read(queues: Any, reader: Any, partitions: list) -> list[tuple[int, int]]:
    """Reads as Spark does: a fresh reader, partitions that were pickled."""
    return [
        (row["queue"], row["offset"])
        for partition in partitions
        for row in rows_of(type(reader)(reader._options).read(pickle.loads(pickle.dumps(partition))))
    ]


def test_a_query_that_prefers_copies_reads_there(queues: Any, serve: Any) -> None:
    queues.put("t", 0, 3)
    copy = StoredQueues()
    copy.put("t", 0, 3)
    copy.address = serve(copy.open_session).address
    queues.readers = (copy.address,)
    reader = batch(queues, readFrom="copies")
    assert read(queues, reader, reader.partitions()) == [(0, 0), (0, 1), (0, 2)]
    assert (copy.pulls(1), queues.pulls(0)) == ([0], [])


def of(*places: int, topic: str = "t", log_id: str = "log-1") -> dict:
    return {topic: {f"broker-a:{queue}": offset for queue, offset in enumerate(places)}, "@logs": {"broker-a": log_id}}


def test_a_batch_reads_everything_that_is_there(queues: Any) -> None:
    queues.put("t", 0, 3)
    queues.put("t", 1, 2)
    reader = batch(queues)
    partitions = reader.partitions()
    assert len(partitions) == 1
    assert read(queues, reader, partitions) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_a_batch_reads_between_the_offsets_given(queues: Any) -> None:
    queues.put("t", 0, 9)
    reader = batch(queues, startingOffsets='{"t":{"0":2}}', endingOffsets='{"t":{"broker-a:0":4}}')
    assert read(queues, reader, reader.partitions()) == [(0, 2), (0, 3)]


def test_a_batch_reads_between_times(queues: Any) -> None:
    queues.put("t", 0, 9)
    times = {"startingTimestamp": str(STORED_MS + 2000), "endingTimestamp": str(STORED_MS + 5000)}
    reader = batch(queues, **times)
    assert read(queues, reader, reader.partitions()) == [(0, 2), (0, 3), (0, 4)]


def test_a_batch_that_ends_before_it_begins_is_empty(queues: Any) -> None:
    queues.put("t", 0, 9)
    times = {"startingTimestamp": str(STORED_MS + 5000), "endingTimestamp": str(STORED_MS + 2000)}
    reader = batch(queues, **times)
    assert read(queues, reader, reader.partitions()) == []


def test_a_batch_of_no_topic_fails_with_a_hint(queues: Any) -> None:
    with pytest.raises(NoRoute, match="'t'"):
        batch(queues).partitions()


def test_a_batch_from_offsets_that_retention_removed_fails_or_reads_the_rest(queues: Any) -> None:
    queues.put("t", 0, 9)
    queues.remove_before("t", 0, 6)
    given = {"startingOffsets": '{"t":{"0":2}}'}
    with pytest.raises(OffsetOutOfRange, match="begins at 6"):
        batch(queues, **given).partitions()
    reader = batch(queues, **given, failOnDataLoss="false")
    assert read(queues, reader, reader.partitions()) == [(0, 6), (0, 7), (0, 8)]


def test_a_stream_from_the_earliest_reads_batch_after_batch(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 3)
    reader = stream(queues, startingOffsets="earliest")
    start = reader.initialOffset()
    assert start == of(0)
    end = reader.latestOffset(start, ALL)
    assert read(queues, reader, reader.partitions(start, end)) == [(0, 0), (0, 1), (0, 2)]
    assert reader.latestOffset(end, ALL) == end
    assert reader.partitions(end, end) == []
    queues.put("t", 0, 1)
    later = reader.latestOffset(end, ALL)
    assert read(queues, reader, reader.partitions(end, later)) == [(0, 3)]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"startingOffsets": '{"t":{"0":-1}}'},
        {"startingTimestamp": str(STORED_MS + 60_000), "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
def test_what_comes_while_the_first_batch_of_a_latest_stream_dies_is_read_after_the_restart(
    queues: Any, stream: Any, given: dict[str, str]
) -> None:
    queues.put("t", 0, 5)
    first = stream(queues, **given)
    start = first.initialOffset()
    queues.put("t", 0, 3, stored_ms=STORED_MS + 100_000)
    logged = first.latestOffset(start, ALL)  # Spark writes this end to its checkpoint, and then dies
    queues.put("t", 0, 2, stored_ms=STORED_MS + 200_000)
    second = stream(queues, **given)
    moved = second.initialOffset()  # asked anew: nobody wrote down the first answer
    assert second.partitions(moved, logged) == []
    end = second.latestOffset(logged, ALL)
    assert read(queues, second, second.partitions(logged, end)) == [(0, at) for at in range(5, 10)]


def test_spark_asks_twice_for_the_initial_offset_and_gets_one_answer(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 5)
    reader = stream(queues)
    before = reader.initialOffset()
    queues.put("t", 0, 5)
    assert reader.initialOffset() == before == of(5)


def test_a_restart_with_an_unfinished_batch_reads_exactly_that_batch(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 9)
    reader = stream(queues, startingOffsets="earliest")
    assert read(queues, reader, reader.partitions(of(2), of(5))) == [(0, 2), (0, 3), (0, 4)]


def test_a_restart_whose_batch_was_removed_by_retention_fails_before_it_reads(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 9)
    queues.remove_before("t", 0, 4)
    with pytest.raises(OffsetOutOfRange, match="begins at 4 now; offset 2"):
        stream(queues).partitions(of(2), of(5))
    reader = stream(queues, failOnDataLoss="false")
    assert read(queues, reader, reader.partitions(of(2), of(5))) == [(0, 4)]


def test_a_broker_whose_data_was_replaced_ends_the_stream(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 3)
    with pytest.raises(OffsetOutOfRange, match="ends at 3"):
        stream(queues).latestOffset(of(7), ALL)
    assert stream(queues, failOnDataLoss="false").latestOffset(of(7), ALL) == of(3)


def test_a_wiped_broker_is_noticed_however_much_it_has_stored_since(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 5)
    reader = stream(queues, startingOffsets="earliest")
    before = reader.latestOffset(reader.initialOffset(), ALL)
    queues.wipe()
    queues.put("t", 0, 9)
    for reads in (lambda one: one.latestOffset(before, ALL), lambda one: one.partitions(of(0), before)):
        with pytest.raises(LogReplaced, match="broker 'broker-a' was wiped or replaced"):
            reads(stream(queues))
    lax = stream(queues, failOnDataLoss="false")
    assert lax.partitions(of(0), before) == [], "the rows of that batch are gone"
    end = lax.latestOffset(before, ALL)
    assert end == of(9, log_id="log-2")
    assert read(queues, lax, lax.partitions(before, end)) == [(0, at) for at in range(9)]
    assert lax.latestOffset(end, ALL) == end


def test_a_checkpoint_of_an_older_version_is_taken_up(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 5)
    reader, old = stream(queues), {"t": {"broker-a:0": 3}}
    end = reader.latestOffset(old, ALL)
    assert end == of(5)
    assert read(queues, reader, reader.partitions(old, end)) == [(0, 3), (0, 4)]
    assert read(queues, reader, reader.partitions(old, {"t": {"broker-a:0": 4}})) == [(0, 3)]


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_broker_that_is_away_ends_a_stream_without_a_batch_whatever_the_option_says(
    queues: Any, stream: Any, loss: str
) -> None:
    queues.put("t", 0, 5)
    queues.is_registered = False
    with pytest.raises(BrokerAway, match="broker-a") as raised:
        stream(queues, failOnDataLoss=loss).partitions(of(0), of(5))
    assert "failOnDataLoss" not in str(raised.value)
    with pytest.raises(BrokerAway):
        stream(queues, failOnDataLoss=loss).latestOffset(of(0), ALL)
    queues.topics = {}  # and the name servers have forgotten it
    with pytest.raises(BrokerAway, match="broker-a"):
        stream(queues, failOnDataLoss=loss).partitions(of(0), of(5))
    with pytest.raises(BrokerAway, match="broker-a"):
        stream(queues, failOnDataLoss=loss).latestOffset(of(5), ALL)


def test_a_stream_that_may_be_incomplete_goes_on_without_a_broker_that_is_away(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 5)
    queues.away = ("broker-b",)
    start = {"t": {"broker-a:0": 2, "broker-b:0": 7}}
    reader = stream(queues, allowIncomplete="true")
    end = reader.latestOffset(start, ALL)
    assert end == {"t": {"broker-a:0": 5, "broker-b:0": 7}, "@logs": {"broker-a": "log-1"}}
    assert read(queues, reader, reader.partitions(start, end)) == [(0, 2), (0, 3), (0, 4)]
    with pytest.raises(BrokerAway, match="broker-b"):
        reader.partitions(start, {"t": {"broker-a:0": 5, "broker-b:0": 8}})


def test_a_checkpoint_of_another_topic_is_an_error_or_left(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 5)
    queues.put("u", 0, 3)
    start = of(2)
    for reads in (lambda one: one.latestOffset(start, ALL), lambda one: one.partitions(start, of(5))):
        with pytest.raises(OffsetOutOfRange, match="offsets of topic 't', which this query does not read"):
            reads(stream(queues, subscribe="u"))
    reader = stream(queues, subscribe="u", failOnDataLoss="false")
    end = reader.latestOffset(start, ALL)
    assert end == of(3, topic="u")
    assert read(queues, reader, reader.partitions(start, end)) == [(0, 0), (0, 1), (0, 2)]


def test_a_run_that_began_without_a_broker_of_its_checkpoint_waits_for_it(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 5)
    reader = stream(queues)
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(BrokerAway, match="broker-b"):
        reader.latestOffset({"t": {"broker-a:0": 2, "broker-b:0": 7}}, ALL)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"endingTimestamp": str(STORED_MS - 5)},
        {"startingOffsets": '{"t":{"0":9}}'},
        {"subscribePattern": "nothing.*"},
        {"subscribePattern": "empty.*"},
    ],
)
def test_a_batch_over_a_range_without_rows_has_no_rows(queues: Any, given: dict[str, str]) -> None:
    queues.create("empty")
    if given:
        queues.put("t", 0, 9)
    else:
        queues.create("t")
    made = PenstockSource(
        CaseInsensitiveDict(
            {"servers": queues.address} | ({} if "subscribePattern" in given else {"subscribe": "t"}) | given
        )
    )
    reader = made.reader(schema=None)
    (partition,) = reader.partitions()
    assert list(reader.read(pickle.loads(pickle.dumps(partition)))) == []


def test_a_queue_that_appears_is_read_from_its_begin_even_by_a_latest_stream(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 5)
    reader = stream(queues)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    queues.put("t", 1, 2)
    end = reader.latestOffset(start, ALL)
    assert end == of(5, 2)
    assert read(queues, reader, reader.partitions(start, end)) == [(1, 0), (1, 1)]


def test_a_topic_that_appears_under_a_running_stream_is_read_from_its_begin(queues: Any, stream: Any) -> None:
    reader = stream(queues)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    assert start == {}
    queues.put("t", 0, 2)
    end = reader.latestOffset(start, ALL)
    assert read(queues, reader, reader.partitions(start, end)) == [(0, 0), (0, 1)]


def test_a_limit_is_honoured_and_everything_is_read_in_the_end(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 7)
    queues.put("t", 1, 3)
    reader = stream(queues, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    seen: list[tuple[int, int]] = []
    at = reader.initialOffset()
    while (end := reader.latestOffset(at, limit)) != at:
        rows = read(queues, reader, reader.partitions(at, end))
        assert len(rows) <= 4
        seen += rows
        at = end
    assert sorted(seen) == [(0, at) for at in range(7)] + [(1, at) for at in range(3)]
    assert reader.reportLatestOffset() == of(7, 3)


class HandClock(Clock):
    """A clock that a test moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return STORED_MS


def test_a_batch_awaits_its_least_rows_but_not_for_ever(queues: Any) -> None:
    queues.put("t", 0, 1)
    clock = HandClock()
    given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "4", "maxTriggerDelay": "30s"}
    made = source(queues, **given, maxOffsetsPerTrigger="5").streamReader(schema=None)
    assert isinstance(made, StreamReader)
    reader = StreamReader(made._options, clock)
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first == of(1), "the first batch is not awaited"
    queues.put("t", 0, 3)
    assert reader.latestOffset(first, limit) == first
    assert reader.reportLatestOffset() == of(4)
    queues.put("t", 0, 1)
    second = reader.latestOffset(first, limit)
    assert second == of(5)
    queues.put("t", 0, 1)
    clock.now += 29.0
    assert reader.latestOffset(second, limit) == second
    clock.now += 1.0
    third = reader.latestOffset(second, limit)
    assert third == of(6)
    queues.put("t", 0, 9)
    assert reader.latestOffset(third, limit) == of(11)
    reader.stop()


def test_a_run_that_ends_awaits_nothing(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 3)
    reader = stream(queues, startingOffsets="earliest", minOffsetsPerTrigger="2")
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))
    assert reader.latestOffset(first, ReadMaxRows(2)) == of(3)


def test_the_brokers_are_told_what_is_finished_under_the_name_of_a_group(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 5)
    reader = stream(queues, startingOffsets="earliest", group="nightly")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert queues.committed == {("nightly", "t:0"): 0}
    assert reader.latestOffset(end, ALL) == end
    assert queues.committed == {("nightly", "t:0"): 5}


def test_a_group_that_has_members_is_no_querys(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 5)
    queues.members = True
    reader = stream(queues, startingOffsets="earliest", group="workers")
    with pytest.raises(InvalidConfig, match="group 'workers' takes no position of a query: group workers has members"):
        reader.latestOffset(reader.initialOffset(), ALL)


def test_a_checkpoint_of_a_newer_version_is_refused(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 5)
    with pytest.raises(InvalidConfig, match="a newer version of Penstock wrote the checkpoint"):
        stream(queues).latestOffset(of(2) | {"@epochs": {}}, ALL)


def test_available_now_reads_nothing_that_came_after_it_began(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 5)
    reader = stream(queues, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    queues.put("t", 0, 5)
    queues.put("t", 1, 5)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert end == of(5)
    assert read(queues, reader, reader.partitions(start, end)) == [(0, at) for at in range(5)]
    assert reader.latestOffset(end, ALL) == end


def test_available_now_from_the_latest_ends_with_an_empty_batch(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 5)
    reader = stream(queues)
    reader.prepareForTriggerAvailableNow()
    queues.put("t", 0, 1)
    start = reader.initialOffset()
    assert start == of(5)
    assert reader.latestOffset(start, ALL) == start
    assert reader.latestOffset(start, ALL) == start
    reader.stop()


def test_many_rows_are_split_and_few_are_packed(queues: Any) -> None:
    for queue in range(4):
        queues.put("t", queue, 10)
    assert len(batch(queues).partitions()) == 1
    split = batch(queues, partitionTargetRows="5", maxPartitions="3")
    assert len(split.partitions()) == 3
    assert len(read(queues, split, split.partitions())) == 40
    assert len(batch(queues, minPartitions="8").partitions()) == 8


def test_the_schema_follows_the_options(queues: Any) -> None:
    assert source(queues, columns="offset,value").schema().simpleString() == "struct<offset:bigint,value:binary>"
    assert "event_time:timestamp" in source(queues, payload="readings").schema().simpleString()
    with pytest.raises(InvalidConfig, match="no option"):
        source(queues, colums="offset").schema()


def test_a_table_is_read_with_the_options_that_it_was_created_with(queues: Any) -> None:
    queues.put("t", 0, 3)
    given = {"subscribe": "t", "servers": queues.address, "columns": "queue,offset"}
    properties = (
        {"provider": "penstock", "owner": "me"} | given | {f"option.{name}": one for name, one in given.items()}
    )
    stored = PenstockSource(CaseInsensitiveDict(properties)).schema()
    reader = PenstockSource(CaseInsensitiveDict({})).reader(schema=stored)
    assert read(queues, reader, reader.partitions()) == [(0, 0), (0, 1), (0, 2)]
    later = PenstockSource(CaseInsensitiveDict({"startingOffsets": '{"t":{"0":2}}'})).reader(schema=stored)
    assert read(queues, later, later.partitions()) == [(0, 2)]


def test_a_schema_that_is_given_chooses_the_columns(queues: Any) -> None:
    queues.put("t", 0, 1)
    schema = source(queues, columns="offset,topic").schema()
    (partition,) = source(queues).reader(schema=schema).partitions()
    assert rows_of(source(queues).reader(schema=schema).read(partition)) == [{"offset": 0, "topic": "t"}]


def test_a_stream_whose_options_are_wrong_says_so_at_its_first_question(queues: Any) -> None:
    refused = source(queues, endingOffsets="latest").streamReader(schema=None)
    for ask in (refused.initialOffset, lambda: refused.latestOffset({}, ALL), lambda: refused.partitions({}, {})):
        with pytest.raises(InvalidConfig, match="a stream has no end"):
            ask()


def test_no_connection_is_pickled_with_a_partition_or_a_batch_reader(queues: Any) -> None:
    queues.put("t", 0, 3)
    reader = batch(queues)
    (partition,) = reader.partitions()
    again = pickle.loads(pickle.dumps(reader))
    assert rows_of(again.read(pickle.loads(pickle.dumps(partition)))) == rows_of(reader.read(partition))


def test_messages_of_a_deleted_topic_that_were_not_read_are_a_loss_that_is_told(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 3)
    reader = stream(queues, startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    queues.put("t", 0, 2)
    queues.delete("t")
    for made_again in (False, True):
        if made_again:
            queues.put("t", 0, 1)
        with pytest.raises(OffsetOutOfRange, match="was deleted or purged at offset 5; offset 3 is wanted"):
            reader.partitions(end, reader.latestOffset(end, ALL))
    lossy = stream(queues, failOnDataLoss="false")
    later = lossy.latestOffset(end, ALL)
    assert read(queues, lossy, lossy.partitions(end, later)) == [(0, 5)]


def test_a_stream_that_has_read_all_of_a_deleted_topic_goes_on_when_it_returns(queues: Any, stream: Any) -> None:
    queues.put("t", 0, 3)
    reader = stream(queues, startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    queues.delete("t")
    assert reader.latestOffset(end, ALL) == end
    assert reader.partitions(end, end) == []
    queues.put("t", 0, 2)
    later = reader.latestOffset(end, ALL)
    assert read(queues, reader, reader.partitions(end, later)) == [(0, 3), (0, 4)]


def test_a_query_that_never_knew_the_earlier_life_of_a_topic_reads_the_new_one_from_its_begin(
    queues: Any, stream: Any
) -> None:
    queues.put("t", 0, 3)
    queues.delete("t")
    queues.put("u", 0, 1)
    reader = stream(queues, subscribe="t,u", startingOffsets="latest")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    queues.put("t", 0, 2)
    later = reader.latestOffset(end, ALL)
    assert read(queues, reader, reader.partitions(end, later)) == [(0, 3), (0, 4)]
