"""Rows of tasks at the real brokers: each stored once, whatever ends a task and however often it runs."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from led_group import LedGroup

from penstock.blocking.reader import Reader
from penstock.errors import BrokerAway, InvalidTopic, NumberTaken, PenstockError, TooLarge, Unavailable
from penstock.spark.sink.blocks import BLOCK_ROWS
from penstock.spark.sink.numbers import Task
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.sending import routes_of, write_rows

SEEDS = 20
Rows = list[tuple[str, bytes]]


class Lost(Exception):
    """What ends a task in the middle."""


GIVEN: list[SinkOptions] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Closes the connections that tasks have left open for the next one."""
    yield
    for one in GIVEN:
        routes_of(os.getpid(), one.servers, one.timeout_s, one.login).close()
    routes_of.cache_clear()
    GIVEN.clear()


def options(cluster: Any, topic: str = "t", **given: Any) -> SinkOptions:
    GIVEN.append(SinkOptions(servers=(cluster.servers,), topic=topic, retry_pause_s=0.01, **given))
    return GIVEN[-1]


def rows_of(first: int, count: int) -> Rows:
    return [(f"d{at % 7}" if at % 3 else "", b"%d" % at) for at in range(first, first + count)]


def batches(rows: Rows, size: int = 1000) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), size):
        keys, values = zip(*rows[at : at + size], strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values, pa.binary())], names=["key", "value"])


def ending(some: Iterator[pa.RecordBatch], after: int, error: Exception) -> Iterator[pa.RecordBatch]:
    for at, batch in enumerate(some):
        if at == after:
            raise error
        yield batch


def stored(cluster: Any, topic: str = "t") -> Counter[bytes]:
    with Reader(topic, servers=cluster.servers, until_end=True) as reader:
        return Counter(message.body for batch in reader for message in batch)


def bodies(rows: Rows) -> Counter[bytes]:
    return Counter(value for _, value in rows)


def test_tasks_that_end_anywhere_and_run_again_store_each_row_once(tmp_path: Path, real_cluster: Any) -> None:
    """Retries, lost answers, whole batches again and restarts of the broker between, over seeds."""
    cluster, start = real_cluster, type(real_cluster)
    expected: Counter[bytes] = Counter()
    try:
        for seed in range(SEEDS):
            chance = random.Random(seed)
            rows = rows_of(100_000 * seed, chance.choice((10, 900, 2 * BLOCK_ROWS + 7)))
            expected += bodies(rows)
            size = chance.choice((500, 3000))
            for _ in range(chance.randrange(3)):
                after = chance.randrange(len(rows) // size + 1)
                with pytest.raises(Lost):
                    write_rows(ending(batches(rows, size), after, Lost()), options(cluster), Task("q", seed, 0))
                if chance.random() < 0.2:
                    close(cluster)
                    cluster = start(tmp_path / "data")
            for _ in range(chance.randrange(1, 3)):
                given = cutting(batches(rows, size), cluster, chance) if chance.random() < 0.5 else batches(rows, size)
                assert write_rows(given, options(cluster), Task("q", seed, 0)) == len(rows)
        assert stored(cluster) == expected
    finally:
        cluster.stop()


def close(cluster: Any) -> None:
    given = options(cluster)
    routes_of(os.getpid(), given.servers, given.timeout_s, given.login).close()
    cluster.stop()


def cutting(some: Iterator[pa.RecordBatch], cluster: Any, chance: random.Random) -> Iterator[pa.RecordBatch]:
    """Batches, between which the connection breaks with a request on its way."""
    for batch in some:
        yield batch
        if chance.random() < 0.5:
            given = options(cluster)
            for link in routes_of(os.getpid(), given.servers, given.timeout_s, given.login)._links.values():
                link.close()


def test_copies_of_a_task_that_run_beside_each_other_store_each_row_once(real_cluster: Any) -> None:
    rows = rows_of(0, 2 * BLOCK_ROWS)
    counts: list[int] = []

    def run(timeout_s: float) -> None:  # each has its connections, as a process has
        counts.append(write_rows(batches(rows), options(real_cluster, timeout_s=timeout_s), Task("q", 0, 0)))

    copies = [threading.Thread(target=run, args=(30.0 + at,)) for at in range(3)]
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.join()
    assert counts == [len(rows)] * 3
    assert stored(real_cluster) == bodies(rows)


def test_rows_in_another_order_are_known_again_where_they_are_few_or_sorted(real_cluster: Any) -> None:
    few, many = rows_of(0, 3000), rows_of(10_000, 2 * BLOCK_ROWS)
    for rows, given in ((few, options(real_cluster)), (many, options(real_cluster, is_sorted=True))):
        for seed in range(3):
            shuffled: Rows = random.Random(seed).sample(rows, len(rows))
            task = Task("q", len(rows), 0)
            if seed == 0 and not given.is_sorted:
                continue
            assert write_rows(batches(shuffled), given, task) == len(rows)
    assert stored(real_cluster) == bodies(few + many)


def test_many_rows_that_come_again_in_another_order_are_refused_not_lost(real_cluster: Any) -> None:
    rows, given, task = rows_of(0, 3 * BLOCK_ROWS), options(real_cluster), Task("q", 0, 0)
    later = rows[:BLOCK_ROWS] + rows[:BLOCK_ROWS:-1] + [rows[BLOCK_ROWS]]  # the first block is the same
    with pytest.raises(Lost):
        write_rows(ending(batches(rows), 10, Lost()), given, task)
    assert BLOCK_ROWS <= stored(real_cluster).total() < len(rows)
    assert write_rows(batches(rows), given, task) == len(rows), "the same order: nothing is refused"
    for again in (later, rows[::-1], rows[BLOCK_ROWS:] + rows[:BLOCK_ROWS]):
        with pytest.raises(NumberTaken, match=r"another message is stored .*rowOrder=sorted"):
            write_rows(batches(again), given, task)
    assert stored(real_cluster) == bodies(rows)
    for again in (rows, rows[::-1]):
        write_rows(batches(again), options(real_cluster, is_sorted=True), task)
    assert stored(real_cluster) == bodies(rows + rows), "the way out: once more, and no row is lost"


def test_queries_batches_and_partitions_are_told_apart(real_cluster: Any) -> None:
    rows = rows_of(0, 100)
    for task in (Task("q", 0, 0), Task("q", 0, 1), Task("q", 1, 0), Task("r", 0, 0)):
        write_rows(batches(rows), options(real_cluster), task)
    assert stored(real_cluster) == Counter(dict.fromkeys(bodies(rows), 4))


def test_one_keys_rows_keep_their_order_and_others_go_round_the_brokers(two_brokers: Any) -> None:
    rows = rows_of(0, 4 * BLOCK_ROWS)
    given = options(two_brokers)
    routes = routes_of(os.getpid(), given.servers, given.timeout_s, given.login)
    for broker in routes.brokers():
        create(routes, broker.address)
    for _ in range(2):
        write_rows(batches(rows), given, Task("q", 0, 0))
    seen: dict[str, list[int]] = {}
    brokers: Counter[tuple[str, bool]] = Counter()
    with Reader("t", servers=two_brokers.servers, until_end=True) as reader:
        for batch in reader:
            for message in batch:
                seen.setdefault(str(message.key), []).append(int(message.body))
                brokers[message.queue.broker, bool(message.key)] += 1
    assert sum(map(len, seen.values())) == len(rows)
    assert all(found == sorted(found) for key, found in seen.items() if key)
    assert len(brokers) == 4


def create(routes: Any, address: str) -> None:
    from penstock.protocol.requests.topics import DescribeTopic, TopicDetail

    routes.link(address).ask(DescribeTopic("t", create=True), TopicDetail)


def test_rows_choose_their_queue_and_one_that_is_not_there_is_told(real_cluster: Any) -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"a", b"b"], "queue": pa.array([2, None], pa.int32())})
    for _ in range(2):
        write_rows([batch], options(real_cluster), Task("q", 0, 0))
    with Reader("t", servers=real_cluster.servers, until_end=True) as reader:
        found = {message.body: message.queue.number for batch in reader for message in batch}
    assert found[b"a"] == 2
    assert stored(real_cluster).total() == 2
    far = pa.RecordBatch.from_pydict({"value": [b"a"], "queue": pa.array([999], pa.int32())})
    with pytest.raises(PenstockError, match=r"refused a row for topic t: topic t has .* no queue 999"):
        write_rows([far], options(real_cluster), Task("q", 1, 0))


def test_a_broker_that_stays_away_is_named(real_cluster: Any) -> None:
    given = options(real_cluster, patience_s=0.0, retries=1)
    rows = rows_of(0, 2 * BLOCK_ROWS)

    def until_it_ends() -> Iterator[pa.RecordBatch]:
        for at, batch in enumerate(batches(rows, BLOCK_ROWS)):
            if at == 1:
                real_cluster.stop()
            yield batch

    with pytest.raises((Unavailable, BrokerAway)):
        write_rows(until_it_ends(), given, Task("q", 0, 0))


@pytest.mark.parametrize(("value", "topic", "error"), [(bytes(5 << 20), "t", TooLarge), (b"", "a/b", InvalidTopic)])
def test_a_row_that_is_no_message_is_refused(
    real_cluster: Any, value: bytes, topic: str, error: type[PenstockError]
) -> None:
    batch = pa.RecordBatch.from_pydict({"value": [value], "topic": [topic]})
    with pytest.raises(error):
        write_rows([batch], options(real_cluster, ""), Task("q", 0, 0))


@pytest.mark.slow
def test_rows_on_their_way_while_the_lead_moves_are_stored_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The lead moves, and then a leader stops, with a request on its way: the next leader knows what is stored."""
    group = LedGroup(tmp_path)
    try:
        expected: Counter[bytes] = Counter()
        for seed, change in enumerate((group.move_lead, group.stop_leader)):
            rows, given = rows_of(100_000 * seed, 4 * BLOCK_ROWS), options(group)
            expected += bodies(rows)
            for run in (changing(rows, change), batches(rows)):  # and once more, as Spark repeats a batch
                assert write_rows(run, given, Task("q", seed, 0)) == len(rows)
            assert "asking again" in caplog.text, "a request was refused, or lost its connection"
            caplog.clear()
        assert stored(group) == expected
    finally:
        group.stop()


def changing(rows: Rows, change: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """Batches, of which the third is made during a change: the second one's request is on its way then."""
    for at, batch in enumerate(batches(rows, BLOCK_ROWS)):
        if at == 2:
            change()
        yield batch
