from __future__ import annotations

import pytest

from broker.kernel.fold import fact_record
from broker.sessions.fold import holder
from broker.settings import BrokerSettings
from broker.store import label
from broker.topics import fold
from broker.topics import requests as topic_requests
from penstock.errors import (
    Busy,
    Fenced,
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    NoRoute,
    OffsetOutOfRange,
    QueueNotFound,
    StorageFull,
    TopicExists,
    TopicNotFound,
)
from penstock.protocol.message import Message
from penstock.protocol.requests.filters import CloseFilters, FetchRetained, OpenFilters
from penstock.protocol.requests.groups import (
    CommitOffsets,
    FetchOffsets,
    HoldOffsets,
    JoinGroup,
    Progress,
    QueueOffset,
    WatchGroup,
)
from penstock.protocol.requests.messages import FindByKey, Pull, QueryBounds
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS, HOME_TOPIC
from penstock.protocol.requests.topics import (
    Bounds,
    CountTopics,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    ListTopics,
    PurgeTopic,
    TopicCount,
    TopicDetail,
    TopicInfo,
)
from tests.broker.broker_rig import Rig, append, but_epochs


def test_a_topic_is_created_with_what_was_asked_and_the_defaults_for_the_rest() -> None:
    rig = Rig(default_queues=3, default_level="cache")
    rig.ask(CreateTopic("b", 2, "disk"))
    rig.ask(CreateTopic("a"))
    assert rig.ask(ListTopics()).topics == (TopicInfo("a", 3, "cache"), TopicInfo("b", 2, "disk"))


def test_a_topic_is_there_after_a_crash_when_it_was_promised() -> None:
    rig = Rig()
    answers = rig.submit(CreateTopic("t", 2))
    assert answers == []
    rig.sync()
    assert answers == [TopicDetail("t", 2, "disk", (Bounds("t:0", 0, 0), Bounds("t:1", 0, 0)))]
    rig.disk.lose_power()
    after = rig.restarted()
    assert after.ask(DescribeTopic("t")) == answers[0]
    assert after.ask(QueryBounds(("t:1",))).bounds == (Bounds("t:1", 0, 0),), "its empty queues are known too"


def test_creating_it_again_is_fine_unless_it_differs() -> None:
    rig = Rig()
    first = rig.ask(CreateTopic("t", 2, "cache"))
    for same in (CreateTopic("t", 2, "cache"), CreateTopic("t"), CreateTopic("t", 2), CreateTopic("t", 0, "cache")):
        assert rig.ask(same) == first
    for other in (CreateTopic("t", 3), CreateTopic("t", 0, "disk")):
        assert isinstance(rig.ask(other), TopicExists)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (CreateTopic(""), InvalidTopic),
        (CreateTopic("a/b"), InvalidTopic),
        (CreateTopic("a" * 256), InvalidTopic),
        (CreateTopic("%sys%topics"), InvalidTopic),
        (CreateTopic("~filter:a"), InvalidTopic),
        (CreateTopic("t:0"), InvalidTopic),
        (CreateTopic("t", -1), InvalidRequest),
        (CreateTopic("t", 1025), InvalidRequest),
        (CreateTopic("t", 1, "quorum"), InvalidRequest),
        (DescribeTopic("t"), TopicNotFound),
        (DescribeTopic("a/b", create=True), InvalidTopic),
    ],
)
def test_what_is_no_topic_is_refused_and_leaves_nothing(request_: CreateTopic, error: type[Exception]) -> None:
    rig = Rig()
    before = rig.store.written
    assert isinstance(rig.ask(request_), error)
    assert (rig.ask(ListTopics()).topics, rig.store.written) == ((), before)


def test_policy_decides_whether_topics_come_by_themselves() -> None:
    assert Rig(default_queues=2).ask(DescribeTopic("t", create=True)).queues == 2
    strict = Rig(auto_create_topics=False)
    assert isinstance(strict.ask(DescribeTopic("t", create=True)), TopicNotFound)
    refused = strict.ask(append(Message("t", b"x"))).refused
    assert [one.code for one in refused] == [TopicNotFound.code]


def test_policy_keeps_no_gateway_from_the_topics_that_it_needs_for_itself() -> None:
    strict = Rig(auto_create_topics=False)
    for topic in GATEWAYS_TOPICS:
        assert strict.ask(DescribeTopic(topic, create=True)).topic == topic
    assert [one.topic for one in strict.ask(ListTopics()).topics] == sorted(GATEWAYS_TOPICS)


def test_a_broker_that_holds_filters_for_sessions_of_another_home_does_not_become_their_home() -> None:
    rig = Rig()
    assert rig.state.homes() == set()
    rig.ask(OpenFilters(holder(7, "b"), ("plant/#",)))
    assert rig.state.homes() == {"b"}
    before = rig.store.written
    refused = rig.ask(DescribeTopic(HOME_TOPIC, create=True))
    assert isinstance(refused, NoRoute)
    assert "MQTT sessions are at home at b, which is away" in str(refused)
    assert rig.store.written == before
    assert rig.ask(DescribeTopic("t", create=True)).queues
    rig.ask(CloseFilters(holder(7, "b"), ("plant/#",)))
    assert rig.ask(DescribeTopic(HOME_TOPIC, create=True)).queues


def test_there_are_no_more_topics_than_the_limit() -> None:
    rig = Rig(topics_max=2)
    for name in "ab":
        rig.ask(CreateTopic(name))
    assert isinstance(rig.ask(CreateTopic("c")), Busy)
    assert [one.code for one in rig.ask(append(Message("c", b"x"), Message("a", b"x"))).refused] == [Busy.code]


def test_clients_without_a_user_name_leave_a_share_of_the_topics_to_others() -> None:
    rig = Rig(topics_max=4, topics_anonymous_share=0.5)
    for topic in "ab":
        assert isinstance(rig.ask(DescribeTopic(topic, create=True, is_anonymous=True)), TopicDetail)
    refused = rig.ask(DescribeTopic("c", create=True, is_anonymous=True))
    assert isinstance(refused, Busy)
    assert "topics_anonymous_share" in refused.message
    assert isinstance(rig.ask(DescribeTopic("a", create=True, is_anonymous=True)), TopicDetail), "it is there"
    assert isinstance(rig.ask(DescribeTopic("c", create=True)), TopicDetail)
    assert isinstance(rig.ask(CreateTopic("d")), TopicDetail)
    full = rig.ask(DescribeTopic("e", create=True))
    assert isinstance(full, Busy)
    assert "the limit topics_max is reached" in full.message


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_the_share_of_clients_without_a_user_name_is_from_0_to_1(share: float) -> None:
    with pytest.raises(InvalidConfig, match=r"topics_anonymous_share is .* \(it is from 0 to 1\)"):
        BrokerSettings(topics_anonymous_share=share)


def test_bounds_of_a_topic_grow_with_what_is_durable() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    rig.submit(append(Message("t", b"x")))
    assert rig.service.topics.get("t").queues == 1
    assert rig.submit(DescribeTopic("t"))[0] == TopicDetail("t", 1, "disk", (Bounds("t:0", 0, 0),))
    rig.sync()
    assert rig.ask(DescribeTopic("t")).bounds == (Bounds("t:0", 0, 1),)


def test_topics_are_counted_a_page_at_a_time() -> None:
    rig = Rig(default_queues=2)
    for topic in ("c", "a", "b"):
        rig.ask(append(*[Message(topic, b"x")] * 3))
    rig.ask(PurgeTopic("b"))
    first = rig.ask(CountTopics("", 2))
    assert first.topics == (TopicCount("a", 3, 3), TopicCount("b", 3, 0))
    last = rig.ask(CountTopics(first.after, 2))
    assert (last.topics, last.after) == ((TopicCount("c", 3, 3),), "")
    assert rig.ask(CountTopics(contains="b")).topics == (TopicCount("b", 3, 0),)
    rig.ask(append(Message("a", b"x" * 10_000)))
    sizes = {one.topic: one.size for one in rig.ask(CountTopics(sizes=True)).topics}
    assert (10_000 < sizes["a"] < 11_000, sizes["b"], 0 < sizes["c"] < 1_000) == (True, 0, True)


def test_so_many_topics_have_a_figure_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_requests, "LABELLED_MAX", 2)
    rig = Rig(default_queues=2)
    for topic in ("c", "a", "b", GATEWAYS_TOPICS[0]):
        rig.ask(append(*[Message(topic, b"x")] * 3))
    figures = rig.service.topics.figures()
    assert figures == {
        "penstock_topics": 3,
        'penstock_topic_messages_total{topic="a"}': 3,
        'penstock_topic_messages_total{topic="b"}': 3,
        'penstock_unlabelled{kind="topics"}': 1,
    }


def test_a_deleted_topic_is_as_one_that_never_was() -> None:
    rig = Rig(default_queues=1)
    rig.ask(append(Message("t", b"x", key="k", retain=True), Message("u", b"y", retain=True)))
    rig.ask(CommitOffsets("g", "", 0, (QueueOffset("t:0", 1), QueueOffset("u:0", 1))))
    waiting = rig.submit(Pull("t:0", 1, wait_s=60.0))
    was = rig.ask(DeleteTopic("t"))
    assert (was.queues, was.bounds) == (1, (Bounds("t:0", 0, 1),))
    assert isinstance(waiting[0], QueueNotFound)
    for request in (DescribeTopic("t"), FindByKey("t", "k"), DeleteTopic("t")):
        assert isinstance(rig.ask(request), TopicNotFound)
    for request in (Pull("t:0", 0), QueryBounds(("t:0",)), CommitOffsets("g", "", 0, (QueueOffset("t:0", 1),))):
        assert isinstance(rig.ask(request), QueueNotFound)
    assert [one.topic for one in rig.ask(ListTopics()).topics] == ["u"]
    assert rig.ask(FetchOffsets("g", ("t:0", "u:0"))).offsets == (QueueOffset("t:0", -1), QueueOffset("u:0", 1))
    assert rig.ask(FetchRetained("#")).count == 1
    assert rig.service.figures()["penstock_topics"] == 1
    assert but_epochs(rig.restarted().state) == but_epochs(rig.state)


def test_a_deletion_is_answered_when_it_is_durable() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t"))
    answers = rig.submit(DeleteTopic("t"))
    assert answers == []
    rig.disk.lose_power()
    rig = rig.restarted()
    assert rig.ask(DescribeTopic("t")).queues, "nobody was told that it is gone"
    rig.ask(DeleteTopic("t"))
    rig.disk.lose_power()
    assert isinstance(rig.restarted().ask(DescribeTopic("t")), TopicNotFound)


def test_a_topic_that_is_made_again_begins_where_it_ended() -> None:
    rig = Rig(default_queues=1)
    for life in range(3):
        assert rig.ask(append(Message("t", b"%d" % life), Message("t", b"x"), detail=True)).placed[0].offset == 2 * life
        assert rig.bodies("t:0", 2 * life) == [b"%d" % life, b"x"]
        if life:
            assert isinstance(rig.ask(Pull("t:0", 2 * life - 1)), OffsetOutOfRange), "of the earlier life"
        rig.ask(DeleteTopic("t"))
        end = 2 * life + 2
        assert rig.ask(DescribeTopic("t", gone=True)).bounds == (Bounds("t:0", end, end, end),)
        rig = rig.restarted()
    assert isinstance(rig.ask(DescribeTopic("never", gone=True)), TopicNotFound)


@pytest.mark.parametrize("topic", [*GATEWAYS_TOPICS, "%sys%topics"])
def test_what_is_the_systems_own_is_not_deleted(topic: str) -> None:
    rig = Rig()
    rig.ask(DescribeTopic(topic, create=True))
    assert isinstance(rig.ask(DeleteTopic(topic)), InvalidTopic)


def test_what_a_filter_has_waiting_of_a_deleted_topic_stays_and_a_new_life_goes_on_there() -> None:
    rig = Rig(default_queues=1)
    opened = rig.ask(OpenFilters("gateway", ("t/#",))).opened[0]
    rig.ask(append(Message("t", b"1", mqtt_topic="t/x")))
    rig.ask(DeleteTopic("t"))
    rig.ask(append(Message("t", b"2", mqtt_topic="t/x")))
    assert rig.bodies(opened.queue, opened.offset) == [b"1", b"2"]
    assert rig.restarted().bodies(opened.queue, opened.offset) == [b"1", b"2"]


def test_members_lose_the_queues_of_a_deleted_topic_and_get_those_of_a_new_one() -> None:
    rig = Rig()
    for topic in "tu":
        rig.ask(CreateTopic(topic, 1))
    joined = rig.ask(JoinGroup("g", "a", ("t", "u"), 30.0))
    rig.ask(DeleteTopic("t"))
    without = rig.ask(WatchGroup("g", "a", joined.generation, 30.0))
    assert [row.queue for row in without.queues] == ["u:0"]
    late = CommitOffsets("g", "a", joined.generation, (QueueOffset("t:0", 0),))
    assert isinstance(rig.ask(late), Fenced)
    rig.ask(CreateTopic("t", 2))
    again = rig.ask(WatchGroup("g", "a", without.generation, 30.0))
    assert [row.queue for row in again.queues] == ["t:0", "t:1", "u:0"]


def test_a_position_that_is_held_in_a_deleted_topic_is_forgotten() -> None:
    rig = Rig(default_queues=1)
    rig.ask(append(Message("t", b"x"), Message("u", b"y")))
    both = (Progress("t:0", 1, 0), Progress("u:0", 1, 0))
    rig.ask(HoldOffsets("g", "gateway", 30.0, both))
    rig.ask(DeleteTopic("t"))
    held = rig.ask(HoldOffsets("g", "gateway", 30.0, both))
    assert held.progress == (Progress("t:0", -1, 0), Progress("u:0", 1, 0))
    rig.ask(append(Message("t", b"2")))
    assert rig.ask(HoldOffsets("g", "gateway", 30.0, (Progress("u:0", 1, 0),))).progress == (Progress("u:0", 1, 0),)
    assert dict(rig.state.offsets.of("g")) == {"u:0": 1}


def test_room_for_topics_comes_back_with_each_that_is_deleted() -> None:
    rig = Rig(topics_max=2, topics_anonymous_share=0.5)
    for topic in ("a", "b", "c"):
        assert isinstance(rig.ask(DescribeTopic(topic, create=True, is_anonymous=True)), TopicDetail)
        assert isinstance(rig.ask(DescribeTopic("more", create=True, is_anonymous=True)), Busy)
        rig.ask(DeleteTopic(topic))


def test_a_deletion_that_the_disk_has_no_room_for_deletes_nothing() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t"))
    rig.disk.capacity = rig.disk.used()
    while not isinstance(rig.ask(append(Message("u", b""))), StorageFull):
        pass
    assert isinstance(rig.ask(DeleteTopic("t")), StorageFull)
    rig.disk.capacity = None
    assert isinstance(rig.ask(DescribeTopic("t")), TopicDetail)


def test_both_lives_of_a_topic_may_be_in_one_chunk_of_the_index() -> None:
    """The pieces of a queue are neighbours there, and merging makes one of them."""
    rig = Rig(default_queues=1, segment_bytes=1 << 16, chunk_bytes=4_000, fresh_bytes=0)

    def seal() -> None:
        before = rig.store.sealed
        while rig.store.sealed == before:
            rig.ask(append(*[Message("other", bytes(900)) for _ in range(5)]))
            for _ in range(5):
                rig.clock.now += 0.05
                rig.dispatch.tick()

    rig.ask(append(*[Message("t", b"old") for _ in range(3)]))
    seal()
    rig.ask(DeleteTopic("t"))
    rig.ask(append(*[Message("t", b"new %d" % number) for number in range(3)]))
    seal()
    chunks = set(rig.disk.paths("index"))
    while chunks.intersection(rig.disk.paths("index")):  # until all of the first segment are one
        seal()
    for _ in range(2):
        assert rig.ask(QueryBounds(("t:0",))).bounds == (Bounds("t:0", 3, 6, 3),)
        assert rig.bodies("t:0", 3) == [b"new 0", b"new 1", b"new 2"]
        rig.store.close(rig.clock.wall_ms())
        rig = rig.restarted()


def test_a_folder_of_an_older_format_is_taken_up_and_refused_to_older_brokers_from_then_on() -> None:
    """An older broker would take a deletion for a topic without queues (format 1), so the format is 2."""
    rig = Rig()
    rig.store.append([fact_record(fold.TOPIC, ["t", 1, "disk"])], 1)  # as it was written then
    rig.sync()
    rig.disk.put(label.PATH, label.encode(label.Label(1, 0, "0.1.0")))
    rig = rig.restarted()
    found = label.read(rig.disk)
    assert found is not None
    assert found.format == label.FORMAT > 1
    assert rig.ask(DeleteTopic("t")).queues == 1, "it was made by hand, for all that is known"
