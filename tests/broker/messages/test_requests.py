from __future__ import annotations

import re
from dataclasses import replace

import pytest

from broker.kernel.outcomes import AfterSync, Now
from broker.messages.requests import READ_S, REFUSED_MAX
from penstock.errors import InvalidRequest, OffsetOutOfRange, QueueNotFound, StorageFull, TooLarge, TopicNotFound
from penstock.protocol.message import Message, decode_batch, encode_message, record_tail
from penstock.protocol.requests.filters import OpenFilters
from penstock.protocol.requests.given import GivenRuns
from penstock.protocol.requests.messages import (
    SPARK,
    SPARK_GROUP,
    Append,
    Appended,
    BoundsReply,
    FindByKey,
    ListReads,
    Placed,
    Pull,
    Pulled,
    QueryBounds,
    SeekTime,
    TopicRead,
)
from penstock.protocol.requests.topics import Bounds, CreateTopic
from penstock.protocol.runs import Run
from tests.broker.broker_rig import Rig, after_sync, append, bodies, now, parked


def made(level: str = "disk", queues: int = 1) -> Rig:
    rig = Rig()
    rig.ask(CreateTopic("t", queues, level))
    return rig


def test_an_append_to_a_disk_topic_is_answered_after_the_sync_and_read_after_it() -> None:
    rig = made()
    outcome = rig.handle(append(Message("t", b"1")))
    assert isinstance(outcome, AfterSync)
    assert outcome.point == rig.store.written
    assert now(rig.handle(Pull("t:0", 0))).count == 0
    rig.sync()
    assert bodies(now(rig.handle(Pull("t:0", 0)))) == [b"1"]


def test_an_append_to_a_cache_topic_is_answered_and_read_at_once() -> None:
    rig = made("cache")
    outcome = rig.handle(append(Message("t", b"1")))
    assert now(outcome) == Appended("cache")
    assert bodies(now(rig.handle(Pull("t:0", 0)))) == [b"1"]


def test_a_batch_waits_for_the_highest_level_that_it_needs() -> None:
    rig = made("cache")
    rig.ask(CreateTopic("d", 1, "disk"))
    assert after_sync(rig.handle(append(Message("t", b"1"), Message("d", b"2")))).level == "disk"


def test_a_record_that_is_refused_leaves_the_others_in_their_places() -> None:
    rig = made()
    good = encode_message(Message("t", b"x"))
    reply = rig.ask(Append(3, True, good + good[:-1] + b"?" + good))
    assert [one.at for one in reply.refused] == [1]
    assert [one.offset for one in reply.placed] == [0, 0, 1]
    assert reply.placed[1] == Placed(0, 0, 0)
    assert rig.bodies("t:0") == [b"x", b"x"]


def test_a_batch_of_which_nothing_is_good_is_answered_without_a_sync() -> None:
    rig = made()
    before = rig.store.written
    reply = now(rig.handle(Append(1, False, encode_message(Message("t", b"x"))[:-1] + b"?")))
    assert [one.at for one in reply.refused] == [0]
    assert rig.store.written == before


def test_an_empty_batch_is_fine() -> None:
    assert isinstance(made().handle(Append(0, True, b"")), Now)


def test_a_full_disk_refuses_a_batch_whole_and_takes_it_when_there_is_room_again() -> None:
    rig = made()
    rig.disk.capacity = rig.disk.used()
    while not isinstance(result := rig.ask(append(Message("t", bytes(1000)))), StorageFull):
        assert isinstance(result, Appended)
    stored = len(rig.bodies("t:0"))
    run = Run(record_tail(b"t", b""), 0, 1000, [bytes(1000)] * 3)
    assert isinstance(rig.ask(GivenRuns(3, [run])), StorageFull)
    figures = rig.service.figures()
    assert (figures["penstock_disk_full"], figures["penstock_messages_refused_total"]) == (1, 4)
    rig.disk.capacity = None
    assert isinstance(rig.ask(append(Message("t", bytes(1000)))), Appended)
    assert len(rig.bodies("t:0")) == stored + 1
    assert rig.service.figures()["penstock_disk_full"] == 0


def test_what_was_under_way_behind_what_a_full_disk_refused_is_refused_too_and_goes_behind_it() -> None:
    rig = made()

    def send(body: bytes, attempt: int, life: str = "a") -> object:
        return rig.ask(GivenRuns(1, [Run(record_tail(b"t", b""), 0, 1000, [body])], life, attempt).for_wire())

    rig.disk.capacity = rig.disk.used()
    while not isinstance(send(bytes(1000), 3), StorageFull):
        pass
    stored = len(rig.bodies("t:0"))
    rig.disk.capacity = None
    for attempt in (3, 2, 3):
        assert isinstance(send(b"under way", attempt), StorageFull)
    assert send(b"another's", 0, "b") == Appended("disk")
    assert send(b"nobody's", 0, "") == Appended("disk")
    assert send(b"again", 4) == Appended("disk")
    assert send(b"later", 4) == Appended("disk")
    assert rig.bodies("t:0")[stored:] == [b"another's", b"nobody's", b"again", b"later"]


def test_of_gateways_that_a_full_disk_refused_the_last_ones_are_remembered() -> None:
    rig = made()
    refused = rig.service._messages._refused
    full = GivenRuns(1, [Run(record_tail(b"t", b""), 0, 1000, [bytes(1000)])], "first")
    rig.disk.capacity = rig.disk.used()
    while not isinstance(rig.ask(full), StorageFull):
        pass
    for at in range(REFUSED_MAX - 1):
        refused[f"epoch-{at}"] = 0
    full.gateway_epoch = "last"
    assert isinstance(rig.ask(full), StorageFull)
    assert len(refused) == REFUSED_MAX
    assert "first" not in refused
    assert list(refused)[-1] == "last"


def test_a_topic_is_created_by_its_first_message() -> None:
    rig = Rig(default_queues=3)
    rig.ask(append(Message("new", b"x")))
    assert [one.topic for one in rig.state.topics] == ["new"]
    assert rig.ask(QueryBounds(("new:0", "new:2"))) == BoundsReply((Bounds("new:0", 0, 1), Bounds("new:2", 0, 0)))


def test_a_message_reaches_every_open_filter_that_matches_its_name() -> None:
    rig = made()
    opened = rig.ask(OpenFilters("g", ("a/+", "a/b", "c", "t"))).opened
    rig.ask(append(Message("t", b"1", mqtt_topic="a/b"), Message("t", b"2", mqtt_topic="c"), Message("t", b"3")))
    assert {one.filter: rig.bodies(one.queue, one.offset) for one in opened} == {
        "a/+": [b"1"],
        "a/b": [b"1"],
        "c": [b"2"],
        "t": [b"3"],
    }


def test_a_pull_waits_for_a_message_and_is_answered_by_it() -> None:
    rig = made()
    answers = rig.submit(Pull("t:0", 0, wait_s=10.0))
    rig.submit(append(Message("t", b"1")))
    assert not answers, "not before it is durable"
    rig.sync()
    assert [bodies(one) for one in answers if isinstance(one, Pulled)] == [[b"1"]]


def test_several_pulls_of_one_queue_are_answered_by_the_same_message() -> None:
    rig = made("cache")
    answers = [rig.submit(Pull("t:0", 0, wait_s=10.0), session) for session in range(3)]
    rig.submit(append(Message("t", b"1")))
    assert [[bodies(one) for one in some if isinstance(one, Pulled)] for some in answers] == [[[b"1"]]] * 3


def test_a_pull_that_waits_in_vain_is_answered_empty_at_its_deadline() -> None:
    rig = made()
    answers = rig.submit(Pull("t:0", 0, wait_s=10.0))
    rig.clock.now = 9.9
    rig.dispatch.tick()
    assert not answers
    rig.clock.now = 10.0
    rig.dispatch.tick()
    assert answers == [Pulled(0, 0, 0, 0, b"")]


def test_a_pull_with_tags_passes_over_other_messages_and_says_how_far_it_came() -> None:
    rig = made("cache")
    rig.ask(append(*[Message("t", str(n).encode(), tag="ab"[n % 2]) for n in range(4)]))
    pulled = now(rig.handle(Pull("t:0", 0, tags=("b",))))
    assert (bodies(pulled), pulled.next) == ([b"1", b"3"], 4)
    answers = rig.submit(Pull("t:0", 4, tags=("b",), wait_s=10.0))
    rig.submit(append(Message("t", b"4", tag="a")))
    assert answers == [Pulled(0, 5, 0, 5, b"")], "it need not look at that one again"


def test_topics_that_were_read_without_a_group_are_told_of_for_a_while() -> None:
    rig = made(queues=2)
    for topic in "uvw":
        rig.ask(CreateTopic(topic))
    queue, offset = rig.ask(OpenFilters("o", ("t/#",))).opened[0][1:3]
    groups = [Pull("u:0", 0, reader=group) for group in ("billing", "Sparkles")]
    spark = [Pull("v:0", 0, reader=SPARK), Pull("w:0", 0, reader=f"{SPARK_GROUP}nightly")]
    for pull in (Pull("t:1", 0), Pull(queue, offset), *groups, *spark):
        rig.ask(pull)
    rig.clock.now += 5.0
    assert rig.ask(ListReads()).topics == tuple([TopicRead(topic, 5.0) for topic in "tvw"])
    rig.clock.now += READ_S
    assert rig.ask(ListReads()).topics == ()


def test_a_pull_of_a_queue_that_ends_while_it_waits_is_told_at_once() -> None:
    rig = Rig(owner_lease_s=5.0)
    opened = rig.ask(OpenFilters("g", ("a",))).opened[0]
    answers = rig.submit(Pull(opened.queue, opened.offset, wait_s=60.0))
    rig.clock.now = 5.0
    rig.dispatch.tick()
    assert [type(one) for one in answers] == [QueueNotFound]


def test_a_pull_of_no_queue_or_beyond_the_end_is_an_error() -> None:
    rig = made()
    assert isinstance(rig.ask(Pull("t:9", 0)), QueueNotFound)
    assert isinstance(rig.ask(Pull("t:0", 1, wait_s=5.0)), OffsetOutOfRange)


@pytest.mark.parametrize(
    "request_",
    [
        Pull("t:0", 0, count_max=0),
        Pull("t:0", 0, bytes_max=0),
        Pull("t:0", 0, wait_s=-1.0),
        FindByKey("t", ""),
        FindByKey("t", "k", count_max=0),
    ],
)
def test_numbers_that_make_no_sense_are_refused(request_: Pull | FindByKey) -> None:
    assert isinstance(made().ask(request_), InvalidRequest)


def test_a_wait_has_a_limit_of_the_brokers_own() -> None:
    assert parked(made().handle(Pull("t:0", 0, wait_s=1e9))).deadline <= 60.0


def test_messages_are_found_by_time_and_by_key() -> None:
    rig = made()
    for n in range(3):
        rig.clock.now = float(n)
        rig.ask(append(Message("t", str(n).encode(), key="k")))
    assert rig.ask(SeekTime("t:0", 1_001_000)).offset == 1
    found = rig.ask(FindByKey("t", "k"))
    assert [message.body for _, message in decode_batch(found.count, found.body)] == [b"2", b"1", b"0"]
    assert found.next == 0, "that was all"
    page = rig.ask(FindByKey("t", "k", count_max=1))
    rest = rig.ask(FindByKey("t", "k", before=page.next))
    assert [message.body for _, message in decode_batch(rest.count, rest.body)] == [b"1", b"0"]
    assert isinstance(rig.ask(FindByKey("nobody", "k")), TopicNotFound)


SEGMENT = 1 << 16
"""Of the rig's brokers."""


def stored(rig: Rig, queue: int) -> list[bytes]:
    """All bodies of a queue of the topic, which is in several segments."""
    found: list[bytes] = []
    while more := bodies(now(rig.handle(Pull(f"t:{queue}", len(found))))):
        found += more
    return found


def test_a_batch_that_does_not_fit_a_segment_is_stored_in_order_and_each_record_has_its_place() -> None:
    rig = made(queues=2)
    sent = [Message("t", b"%06d" % at + bytes(900), key=str(at % 7)) for at in range(300)]
    reply = after_sync(rig.handle(replace(append(*sent), detail=True)))
    assert reply.refused == ()
    assert len({one.position for one in reply.placed}) == 300
    rig.sync()
    for queue in (0, 1):
        own = [(placed.offset, one.body) for placed, one in zip(reply.placed, sent, strict=True) if placed[0] == queue]
        assert [offset for offset, _ in own] == list(range(len(own)))
        assert stored(rig, queue) == [body for _, body in own]
    assert rig.service.figures()["rocketmq_messages_in_total"] == 300


def test_a_record_that_no_segment_holds_is_refused_alone_and_by_an_error_of_its_own() -> None:
    rig = made()
    small, large = Message("t", bytes(900)), Message("t", bytes(SEGMENT))
    batch = append(*[small] * 100, large, *[small] * 100, large)
    reply = after_sync(rig.handle(replace(batch, detail=True)))
    assert [(one.at, one.code) for one in reply.refused] == [(100, TooLarge.code), (201, TooLarge.code)]
    said = r"a message of \d+ bytes does not fit a segment of this broker, which holds 65512"
    assert re.fullmatch(said, reply.refused[0].message)
    assert [at for at, one in enumerate(reply.placed) if one == Placed(0, 0, 0)][-2:] == [100, 201]
    rig.sync()
    assert len(stored(rig, 0)) == 200
    [alone] = now(rig.handle(append(large))).refused
    assert alone.code == TooLarge.code


def test_other_records_of_such_a_batch_are_refused_in_their_places_too() -> None:
    rig = made()
    bad = encode_message(Message("t", bytes(900)))[:-1] + b"?"
    good = encode_message(Message("t", bytes(900)))
    body = good * 100 + bad + good * 100 + bad
    reply = after_sync(rig.handle(Append(202, True, body)))
    assert [one.at for one in reply.refused] == [100, 201]
    rig.sync()
    assert len(stored(rig, 0)) == 200


def full_behind(rig: Rig) -> None:
    """The disk has room for about a segment and a half more, behind the present one, whose file becomes whole as it
    ends."""
    rig.disk.capacity = rig.disk.used() + SEGMENT * 5 // 2


def test_where_the_disk_is_full_behind_a_part_the_others_are_refused_for_it_and_go_in_when_there_is_room() -> None:
    rig = made()
    sent = [Message("t", b"%06d" % at + bytes(900)) for at in range(300)]
    full_behind(rig)
    reply = after_sync(rig.handle(append(*sent)))
    first = reply.refused[0].at
    assert 0 < first < 300
    assert [(one.at, one.code) for one in reply.refused] == [(at, StorageFull.code) for at in range(first, 300)]
    rig.sync()
    assert stored(rig, 0) == [one.body for one in sent[:first]]
    assert rig.service.figures()["penstock_messages_refused_total"] == 300 - first
    rig.disk.capacity = None
    rig.ask(append(*sent[first:]))
    assert stored(rig, 0) == [one.body for one in sent]


def test_a_disk_that_is_full_before_the_first_part_refuses_the_batch_whole() -> None:
    rig = made()
    rig.disk.capacity = rig.disk.used()
    while not isinstance(rig.ask(append(Message("t", bytes(1000)))), StorageFull):
        pass
    before = len(stored(rig, 0))
    assert isinstance(rig.ask(append(*[Message("t", bytes(900))] * 300)), StorageFull)
    assert len(stored(rig, 0)) == before


def test_runs_that_do_not_fit_a_segment_are_stored_in_order_but_for_what_no_segment_holds() -> None:
    rig = made()
    tail = record_tail(b"t", b"")
    runs = [Run(tail, 0, 1000, [b"%06d" % (number * 50 + at) + bytes(900) for at in range(50)]) for number in range(5)]
    runs.insert(2, Run(tail, 0, 1000, [bytes(SEGMENT)] * 2))
    reply = after_sync(rig.handle(GivenRuns(252, runs)))
    assert [(one.at, one.code) for one in reply.refused] == [(100, TooLarge.code), (101, TooLarge.code)]
    rig.sync()
    assert [body[:6] for body in stored(rig, 0)] == [b"%06d" % at for at in range(250)]


def test_where_the_disk_is_full_behind_a_part_of_runs_what_is_under_way_is_refused_too() -> None:
    rig = made()
    run = Run(record_tail(b"t", b""), 0, 1000, [b"%06d" % at + bytes(900) for at in range(300)])
    full_behind(rig)
    reply = after_sync(rig.handle(GivenRuns(300, [run], "life", 3)))
    first = reply.refused[0].at
    assert 0 < first < 300
    assert [(one.at, one.code) for one in reply.refused] == [(at, StorageFull.code) for at in range(first, 300)]
    rig.disk.capacity = None
    behind = Run(record_tail(b"t", b""), 0, 1000, [b"behind"])
    assert isinstance(rig.ask(GivenRuns(1, [behind], "life", 3)), StorageFull)
    rig.ask(GivenRuns(300 - first, [run.of(run.bodies[first:])], "life", 4))
    rig.ask(GivenRuns(1, [behind], "life", 4))
    assert stored(rig, 0) == [*run.bodies, b"behind"]
