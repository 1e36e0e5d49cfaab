"""Runs of publications are stored as their records would be: the same log, queues, keys and folds, the same
refusals; each message of a batch is stored or refused on its own; and who pulls in the same process gets them as they
are stored."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import errors
from penstock.errors import InvalidRequest, OffsetOutOfRange, QueueNotFound, StorageFull
from penstock.protocol.message import (
    ENTRY,
    FLAG_ONCE,
    FLAG_RETAIN,
    KEYS,
    MQTT_TOPIC,
    TAGS,
    UNIQUE_KEY,
    Message,
    decode_batch,
    encode_properties,
    encode_record,
    mqtt_name,
    record_tail,
)
from penstock.protocol.requests.filters import FetchRetained, OpenFilters
from penstock.protocol.requests.given import GivenPull, GivenPulled, GivenRuns
from penstock.protocol.requests.messages import Append, Appended, AppendRuns, FindByKey, Pull, Pulled, QueryBounds
from penstock.protocol.requests.sessions import OpenSession
from penstock.protocol.requests.topics import CreateTopic
from penstock.protocol.runs import DIGITS, Run, checksum_of, encode_runs
from tests.broker.broker_rig import Rig, after_sync, append, bodies, but_epochs, now, parked


def request(*runs: Run) -> AppendRuns:
    body = encode_runs(runs)
    return AppendRuns(sum(len(run.bodies) for run in runs), checksum_of(body), body)


def tail(topic: str, **properties: str) -> bytes:
    return record_tail(topic.encode(), encode_properties(properties))


def records(*runs: Run) -> Append:
    made = []
    for run in runs:
        for number, body in enumerate(run.bodies):
            own = run.tail_of(number)
            topic_bytes = int.from_bytes(own[:2], "big")
            topic, properties = own[2 : 2 + topic_bytes], own[topic_bytes + 4 :]
            made.append(encode_record(topic, body, properties, flag=run.flag, born_ms=run.born_ms))
    return Append(len(made), False, b"".join(made))


def made(level: str = "disk", queues: int = 2, **settings: Any) -> Rig:
    rig = Rig(**settings)
    rig.ask(CreateTopic("t", queues, level))
    rig.ask(CreateTopic("c", 1, "cache"))
    rig.ask(OpenFilters("gw", ("t/#", "c", "+/1")))
    return rig


TAILS = st.sampled_from(
    [
        tail("t", **{MQTT_TOPIC: "t/1", KEYS: "k"}),
        tail("t", **{MQTT_TOPIC: "t/2", KEYS: "k l", TAGS: "red"}),
        tail("c"),
        tail("new", **{KEYS: "k"}),
        tail("t", **{MQTT_TOPIC: "t/1", KEYS: "k", UNIQUE_KEY: "p-0000000000fe"}),
        tail("c", **{UNIQUE_KEY: "p-000000000001"}),
        tail("t", **{KEYS: "l", UNIQUE_KEY: "p-ffffffffffff"}),
        tail("bad topic"),
        tail("t", **{KEYS: "k", MQTT_TOPIC: "t/1"}),
        b"\x00\x00\x00\x00",
    ]
)
RUNS = st.lists(
    st.tuples(TAILS, st.sampled_from([0, 1, 2, 1 | FLAG_RETAIN]), st.integers(0, 30)).flatmap(
        lambda parts: st.builds(
            Run,
            st.just(parts[0]),
            st.just(parts[1]),
            st.integers(0, 1 << 40),
            st.lists(st.binary(min_size=parts[2], max_size=parts[2]), min_size=1, max_size=4),
            st.just(UNIQUE_KEY.encode() in parts[0] and not parts[0].endswith(b"f" * DIGITS)),
        )
    ),
    max_size=6,
)


@settings(max_examples=60)
@given(RUNS, st.booleans())
def test_runs_leave_the_same_log_queues_and_folds_as_their_records(runs: list[Run], is_given: bool) -> None:
    by_runs, by_records = made(), made()
    asked = GivenRuns(sum(len(run.bodies) for run in runs), runs) if is_given else request(*runs)
    first, second = by_runs.ask(asked), by_records.ask(records(*runs))
    assert isinstance(first, Appended)
    assert isinstance(second, Appended)
    assert (first.level, [(one.at, one.code) for one in first.refused]) == (
        second.level,
        [(one.at, one.code) for one in second.refused],
    )
    log = by_runs.store._log
    assert log.read(0, log.end) == by_records.store._log.read(0, by_records.store._log.end)
    assert by_runs.state.snapshot() == by_records.state.snapshot()
    queues = {queue.key: (bytes(queue.tail), queue.readable) for queue in by_runs.store._index}
    assert queues == {queue.key: (bytes(queue.tail), queue.readable) for queue in by_records.store._index}
    for key in ("k", "l", "p-0000000000fe", "p-0000000000ff", "p-000000000100", "p-000000000002"):
        found = by_runs.ask(FindByKey("t", key))
        assert bodies(found) == bodies(by_records.ask(FindByKey("t", key)))
        assert bodies(by_runs.ask(FindByKey("c", key))) == bodies(by_records.ask(FindByKey("c", key)))
    again = by_runs.restarted()
    for topic, key in (("t", "k"), ("t", "p-0000000000ff"), ("c", "p-000000000002")):
        assert bodies(again.ask(FindByKey(topic, key))) == bodies(by_records.ask(FindByKey(topic, key)))
    assert but_epochs(again.state) == but_epochs(by_records.state)
    assert {queue.key: queue.readable for queue in again.store._index} == {key: end for key, (_, end) in queues.items()}


def test_a_batch_waits_for_the_highest_level_that_it_needs() -> None:
    rig = made()
    assert now(rig.handle(request(Run(tail("c"), 1, 0, [b"1"])))) == Appended("cache")
    both = request(Run(tail("c"), 1, 0, [b"2"]), Run(tail("t"), 1, 0, [b"3"]))
    assert after_sync(rig.handle(both)).level == "disk"


def test_a_bad_run_refuses_its_own_messages_by_their_places() -> None:
    rig = made(queues=1)
    good = Run(tail("t"), 1, 0, [b"a", b"b"])
    reply = rig.ask(request(good, Run(b"\x00\x09", 1, 0, [b"x", b"y"]), good))
    assert [(one.at, one.code) for one in reply.refused] == [(at, errors.InvalidMessage.code) for at in (2, 3)]
    assert rig.bodies("t:0") == [b"a", b"b", b"a", b"b"]


@pytest.mark.parametrize(("count", "flips"), [(2, 0), (4, 0), (3, 1)])
def test_a_batch_that_is_not_what_its_request_says_is_refused_whole(count: int, flips: int) -> None:
    rig = made(queues=1)
    body = encode_runs([Run(tail("t"), 1, 0, [b"a", b"b", b"c"])])
    changed = body[:-1] + bytes([body[-1] ^ flips])
    reply = rig.ask(AppendRuns(count, checksum_of(body), changed))
    assert isinstance(reply, InvalidRequest)
    assert "nothing was stored" in reply.message
    assert rig.bodies("t:0") == []


def test_a_message_of_an_exchange_is_stored_once_however_it_comes() -> None:
    rig = made(queues=1)
    session = rig.ask(OpenSession("gw", "c1", True, 60, b""))
    exchange = f"{session.generation}:{session.epoch}:7"
    once = Run(tail("t", MQTT_CLIENT="c1", MQTT_ID=exchange), 2 | FLAG_ONCE, 0, [b"x"])
    assert rig.ask(request(once, once)) == Appended("disk")
    assert rig.ask(request(once.of([b"x", b"x"]))) == Appended("disk")
    assert rig.bodies("t:0") == [b"x"]


def test_retained_messages_have_a_limit_in_runs_too() -> None:
    rig = made(queues=1, retained_max=1)
    keep = [Run(tail("t", **{MQTT_TOPIC: f"t/{at}"}), 1 | FLAG_RETAIN, 0, [b"x"]) for at in range(3)]
    reply = rig.ask(request(*keep))
    assert [(one.at, one.code) for one in reply.refused] == [(1, errors.Busy.code), (2, errors.Busy.code)]
    assert len(rig.state.retained) == 1


def test_messages_without_a_key_keep_their_order_in_one_queue_for_a_run() -> None:
    rig = made(queues=3)
    for _ in range(3):
        rig.ask(request(Run(tail("t"), 1, 0, [b"a", b"b"])))
    assert [rig.bodies(f"t:{queue}") for queue in range(3)] == [[b"a", b"b"]] * 3


# ------------------------------------------------------------ pulls in the same process

QUEUES = ("t:0", "t:1", "c:0", "~filter:t/#", "~filter:c", "~filter:+/1")
Row = tuple[int, int, int, int, int, int, bytes, str]


def given_rows(offset: int, pulled: GivenPulled) -> list[Row]:
    """Offset, position, queue id and offset in the topic's queue, store time, flag, body and name of each message."""
    rows: list[Row] = []
    for run in pulled.runs:
        topic_bytes = int.from_bytes(run.tail[:2], "big")
        name = mqtt_name(run.tail[2 : 2 + topic_bytes], run.tail[topic_bytes + 4 :])
        for number, body in enumerate(run.bodies):
            position, place = run.position + number * run.step, run.offset + number
            rows.append((offset, position, run.queue_id, place, run.stored_ms, run.flag, body, name))
            offset += 1
    return rows


def pulled_rows(pulled: Pulled) -> list[Row]:
    """The same of frames."""
    return [
        (
            offset,
            one.position,
            one.queue.number,
            one.offset,
            one.stored_ms,
            one.qos | one.retain << 2,
            one.body,
            one.name,
        )
        for offset, one in decode_batch(pulled.count, pulled.body)
    ]


STEPS = st.lists(st.one_of(RUNS, st.sampled_from(["record", "sync", "time"])), max_size=30)
ASKED = st.lists(
    st.tuples(
        st.sampled_from(QUEUES),
        st.integers(0, 40),
        st.sampled_from([1, 2, 5, 1000]),
        st.sampled_from([1, 400, 2000, 1 << 20]),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=40)
@given(STEPS, ASKED, st.sampled_from([0, 3000, 1 << 20]))
def test_a_pull_in_the_same_process_gets_the_runs_whose_frames_it_would_get(
    steps: list[list[Run] | str], asked: list[tuple[str, int, int, int]], fresh_bytes: int
) -> None:
    rig = made(fresh_bytes=fresh_bytes)
    for step in steps:
        if step == "sync":
            rig.sync()
        elif step == "time":
            rig.clock.now += 1.5
        elif isinstance(step, str):
            rig.submit(append(Message("t", b"native", mqtt_topic="t/1")))
        elif step:
            rig.submit(GivenRuns(sum(len(run.bodies) for run in step), step))
    for queue, back, count_max, bytes_max in asked:
        bounds = rig.store.bounds(queue)
        offset = max(bounds.min, bounds.end - back)
        frames = now(rig.handle(Pull(queue, offset, bytes_max, count_max)))
        before = rig.service.figures()
        found = now(rig.handle(GivenPull(queue, offset, bytes_max, count_max, 0.0)))
        after = rig.service.figures()
        assert found.next == offset + found.count
        if isinstance(found, GivenPulled):
            rows = pulled_rows(frames)[: found.count]
            assert given_rows(offset, found) == rows
            assert len(rows) == found.count
            size = sum(len(run.bodies) * run.step for run in found.runs)
            assert size <= bytes_max
            assert fresh_bytes or not found.count
            size += found.count * ENTRY.size
        else:
            assert found == frames
            size = len(found.body)
        for figure, more in (("rocketmq_messages_out_total", found.count), ("rocketmq_throughput_out_total", size)):
            assert after[figure] - before[figure] == more


@pytest.mark.parametrize("level", ["cache", "disk"])
def test_a_pull_in_the_same_process_waits_for_a_run_and_gets_that_very_one(level: str) -> None:
    rig = made(level, queues=1)
    answers = rig.submit(GivenPull("t:0", 0, 1 << 20, 100, 10.0))
    run = Run(tail("t"), 1, 0, [b"a", b"b"])
    rig.submit(GivenRuns(2, [run]))
    assert len(answers) == (level == "cache"), "not before it may be read"
    rig.sync()
    [pulled] = answers
    assert isinstance(pulled, GivenPulled)
    assert (pulled.count, pulled.next) == (2, 2)
    [stored] = pulled.runs
    assert stored.bodies is run.bodies
    assert stored.tail is run.tail


def test_a_pull_in_the_same_process_gets_frames_where_a_run_is_larger_than_asked_for_or_begun() -> None:
    rig = made(queues=1)
    rig.ask(request(Run(tail("t"), 1, 0, [b"a", b"b", b"c"])))
    rig.ask(append(Message("t", b"d")))
    for offset, count_max, bytes_max, got in ((0, 2, 1 << 20, 2), (0, 9, 200, 1), (1, 9, 1 << 20, 3), (3, 9, 9, 1)):
        pulled = rig.ask(GivenPull("t:0", offset, bytes_max, count_max, 0.0))
        assert isinstance(pulled, Pulled)
        assert pulled.count == got
    pulled = rig.ask(GivenPull("t:0", 0, 1 << 20, 9, 0.0))
    assert isinstance(pulled, GivenPulled)
    assert pulled.count == 4
    assert [run.bodies for run in pulled.runs] == [[b"a", b"b", b"c"], [b"d"]], "a whole record is a run of one"


def test_a_pull_in_the_same_process_that_waits_in_vain_is_answered_empty() -> None:
    rig = made(queues=1)
    answers = [now(rig.handle(GivenPull("t:0", 0, 100, 10, 0.0)))]
    assert parked(rig.handle(GivenPull("t:0", 0, 100, 10, 1e9))).deadline <= 60.0
    late = rig.submit(GivenPull("t:0", 0, 100, 10, 10.0))
    rig.clock.now = 10.0
    rig.dispatch.tick()
    for answer in [*answers, *late]:
        assert isinstance(answer, GivenPulled)
        assert (answer.count, answer.next, answer.runs) == (0, 0, [])
    assert len(late) == 1


def test_a_pull_in_the_same_process_is_refused_as_any_other() -> None:
    rig = made(queues=1, owner_lease_s=5.0)
    assert isinstance(rig.ask(GivenPull("t:9", 0, 100, 10, 5.0)), QueueNotFound)
    assert isinstance(rig.ask(GivenPull("t:0", 1, 100, 10, 5.0)), OffsetOutOfRange)
    for bytes_max, count_max, wait_s in ((0, 10, 0.0), (100, 0, 0.0), (100, 10, -1.0)):
        assert isinstance(rig.ask(GivenPull("t:0", 0, bytes_max, count_max, wait_s)), InvalidRequest)
    [bounds] = rig.ask(QueryBounds(("~filter:c",))).bounds
    answers = rig.submit(GivenPull("~filter:c", bounds.end, 100, 10, 60.0))
    rig.clock.now = 5.0
    rig.dispatch.tick()
    assert [type(one) for one in answers] == [QueueNotFound]


def test_a_filter_that_is_opened_has_what_comes_later_to_names_that_were_there_before() -> None:
    rig = made()
    run = Run(tail("t", **{MQTT_TOPIC: "t/1"}), 1, 0, [b"x"])
    rig.ask(request(run))
    rig.ask(OpenFilters("gw", ("t/1",)))
    rig.ask(request(run))
    assert rig.bodies("~filter:t/1", rig.ask(QueryBounds(("~filter:t/1",))).bounds[0].min) == [b"x"]


# ------------------------------------------------------------ producers


def counting(topic: str, first: int, *same: bytes, **before: str) -> Run:
    """A run of a producer."""
    return Run(tail(topic, **before, **{UNIQUE_KEY: f"p-{first:0{DIGITS}x}"}), 1, 0, list(same), counts=True)


def detailed(*runs: Run) -> AppendRuns:
    asked = request(*runs)
    return AppendRuns(asked.count, asked.checksum, asked.body, detail=True)


def test_a_producer_is_told_where_each_run_is_and_which_messages_were_refused() -> None:
    rig = made(queues=2)
    runs = [
        counting("t", 1, b"a", b"b", KEYS="k"),
        counting("bad topic", 3, b"x", b"y"),
        counting("t", 5, b"c", KEYS="k"),
        counting("new", 6, b"d", b"e"),
    ]
    reply = rig.ask(detailed(*runs))
    assert [(one.at, one.offset) for one in reply.runs] == [(0, 0), (4, 2), (5, 0)]
    assert (reply.placed, [one.at for one in reply.refused]) == ((), [2, 3])
    for row, topic, sent in zip(reply.runs, ("t", "t", "new"), (b"a", b"c", b"d"), strict=True):
        [(offset, message)] = list(
            decode_batch(1, rig.ask(Pull(f"{topic}:{row.queue_id}", row.offset, count_max=1)).body)
        )
        assert (offset, message.position, message.body) == (row.offset, row.position, sent)
    found = rig.ask(FindByKey("new", "p-000000000007"))
    assert bodies(found) == [b"e"]
    assert [message.id for _, message in decode_batch(found.count, found.body)] == ["p-000000000007"]


def test_the_places_of_a_batch_in_parts_say_where_each_part_is() -> None:
    rig = made(queues=1, segment_bytes=16_384)
    same = [b"%d" % at + bytes(3999) for at in range(10)]
    reply = rig.ask(detailed(counting("t", 0xFC, *same)))
    assert len(reply.runs) > 1
    assert sum([[one.at, one.offset] == [one.at, one.at] for one in reply.runs]) == len(reply.runs)
    for at in range(10):
        assert bodies(rig.ask(FindByKey("t", f"p-{0xFC + at:012x}"))) == [same[at]]


def test_a_producer_that_the_disk_had_no_room_for_may_try_again_at_once() -> None:
    rig = made(queues=1)
    rig.disk.fail("pwrite", errno.ENOSPC)
    asked = detailed(counting("t", 1, b"a", b"b"))
    assert isinstance(rig.ask(asked), StorageFull)
    reply = rig.ask(asked)
    assert [(one.at, one.offset) for one in reply.runs] == [(0, 0)]


def test_retained_messages_of_a_producer_keep_their_own_ids() -> None:
    rig = made(queues=1)
    run = counting("t", 0xFF, b"older", b"newer", **{MQTT_TOPIC: "t/1"})
    run.flag |= FLAG_RETAIN
    rig.ask(detailed(run))
    page = rig.ask(FetchRetained("t/1"))
    [(_, message)] = decode_batch(page.count, page.body)
    assert (message.body, message.id) == (b"newer", "p-000000000100")


def test_what_was_stored_in_runs_reads_the_same_after_a_replay_takes_it_in_as_runs_again() -> None:
    rig = made(queues=1)
    rig.ask(
        detailed(
            counting("t", 0xFD, *[b"%d" % at for at in range(6)], **{MQTT_TOPIC: "t/1", KEYS: "k"}),
            counting("t", 0x200, b"x", b"y", **{MQTT_TOPIC: "t/1", KEYS: "k"}),
            Run(tail("t", **{MQTT_TOPIC: "t/1", UNIQUE_KEY: "p-000000000202"}), 1, 0, [b"same id", b"same id"]),
            Run(tail("t"), 1, 0, [b"a", b"b", b"c"]),
            counting("c", 1, b"d"),
            counting("c", 3, b"e", b"f"),
        )
    )
    queues = ("t:0", "c:0", "~filter:t/#", "~filter:c", "~filter:+/1")
    keys = [
        ("t", "k"),
        *[("t", f"p-{number:012x}") for number in (0xFD, 0x100, 0x102, 0x103, 0x201, 0x202)],
        ("c", "p-3"),
    ]

    def seen(one: Rig) -> list[bytes]:
        mins = {queue: one.ask(QueryBounds((queue,))).bounds[0].min for queue in queues}
        found = [one.ask(Pull(queue, mins[queue])).body for queue in queues]
        return [bytes(body) for body in found] + [bytes(one.ask(FindByKey(*key)).body) for key in keys]

    before = seen(rig)
    assert len(before[0]) > 13 * 100
    assert seen(rig.restarted()) == before
