"""Topics that their first message made go when nobody needs them any more, and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.groups import fold as offsets
from broker.groups.fold import Offsets
from broker.kernel.fold import fact_record
from broker.topics import empty
from penstock.errors import StorageFull, TopicNotFound
from penstock.protocol.message import Message
from penstock.protocol.requests.filters import CloseFilters, OpenFilters
from penstock.protocol.requests.groups import CommitOffsets, JoinGroup, LeaveGroup, QueueOffset
from penstock.protocol.requests.messages import Pull, QueryBounds
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from penstock.protocol.requests.topics import CreateTopic, DescribeTopic, ListTopics
from tests.broker.broker_rig import Rig, append

EMPTY_S = 100.0


def rig_with(*topics: str, **settings: object) -> Rig:
    """Topics as their first message makes them, without one."""
    rig = Rig(default_queues=1, empty_topic_s=EMPTY_S, **settings)
    for topic in topics:
        rig.ask(DescribeTopic(topic, create=True))
    return rig


def after(rig: Rig, seconds: float) -> list[str]:
    """The topics that are there when some time has passed."""
    end = rig.clock.now + seconds
    while rig.clock.now < end:
        rig.clock.now += 1.0
        for _ in range(3):
            rig.dispatch.tick()
        rig.sync()
    return [one.topic for one in rig.ask(ListTopics()).topics]


def test_a_topic_without_messages_goes_after_a_while_and_one_made_by_hand_stays() -> None:
    rig = rig_with("a", *GATEWAYS_TOPICS)
    rig.ask(CreateTopic("by-hand"))
    rig.ask(append(Message("b", b"x")))
    assert "a" in after(rig, EMPTY_S - 1)
    assert after(rig, 30) == sorted(["b", "by-hand", *GATEWAYS_TOPICS])
    assert rig.service.figures()["penstock_empty_topics_deleted_total"] == 1


def test_making_a_topic_by_hand_that_is_there_already_has_it_stay() -> None:
    rig = rig_with("a", "b")
    rig.ask(CreateTopic("a"))
    assert after(rig, 2 * EMPTY_S) == ["a"]
    rig = rig.restarted()
    assert after(rig, 2 * EMPTY_S) == ["a"]


def test_a_topic_goes_when_retention_has_removed_its_last_message_and_comes_again_behind_it() -> None:
    rig = Rig(default_queues=1, empty_topic_s=EMPTY_S, retention_bytes=1 << 17)
    rig.ask(append(Message("a", b"1"), Message("a", b"2")))
    while rig.ask(QueryBounds(("a:0",))).bounds[0].min < 2:
        rig.ask(append(Message("other", bytes(50_000))))
        rig.dispatch.tick()
    assert after(rig, EMPTY_S + 30) == ["other"]
    assert rig.ask(append(Message("a", b"3"), detail=True)).placed[0].offset == 2
    assert rig.restarted().bodies("a:0", 2) == [b"3"]


def test_never_is_a_setting() -> None:
    rig = Rig(empty_topic_s=0.0)
    rig.ask(DescribeTopic("a", create=True))
    assert after(rig, 50) == ["a"]


def a_group(rig: Rig) -> Callable[[], object]:
    rig.ask(CommitOffsets("g", "", 0, (QueueOffset("a:0", 0),)))
    return lambda: rig.store.append([fact_record(offsets.TOPIC, Offsets.fact("g", ()))], rig.clock.wall_ms())


def a_member(rig: Rig) -> Callable[[], object]:
    rig.ask(JoinGroup("g", "m", ("a",), 3600.0))
    return lambda: rig.ask(LeaveGroup("g", "m"))


def a_filter(rig: Rig) -> Callable[[], object]:
    rig.ask(OpenFilters("~session/1", ("a/+/x",)))
    return lambda: rig.ask(CloseFilters("~session/1", ("a/+/x",)))


def a_share(rig: Rig) -> Callable[[], object]:
    rig.ask(OpenFilters("~session/1", ("$share/g/a/#",)))
    return lambda: rig.ask(CloseFilters("~session/1", ("$share/g/a/#",)))


def a_reader_that_waits(rig: Rig) -> Callable[[], object]:
    rig.submit(Pull("a:0", 0, wait_s=60.0), session=7)
    return lambda: rig.dispatch.drop(7)


@pytest.mark.parametrize("use", [a_group, a_member, a_filter, a_share])
def test_a_topic_that_is_in_use_stays_until_it_is_not(use: Callable[[Rig], Callable[[], object]]) -> None:
    rig = rig_with("a", "b")
    end = use(rig)
    assert after(rig, 2 * EMPTY_S) == ["a"]
    end()
    assert after(rig, 2 * EMPTY_S) == []


def test_a_topic_whose_queue_a_pull_waits_for_stays() -> None:
    rig = rig_with("a")
    for _ in range(4):  # a long poll ends after a minute, and the next one begins
        end = a_reader_that_waits(rig)
        assert after(rig, 59) == ["a"]
    end()
    assert after(rig, 2 * EMPTY_S) == []


def test_a_topic_that_is_asked_for_now_and_then_stays() -> None:
    rig = rig_with("a")
    for request in (DescribeTopic("a"), QueryBounds(("a:0",))) * 3:
        rig.ask(request)
        assert after(rig, EMPTY_S - 15) == ["a"]
    assert after(rig, 2 * EMPTY_S) == []


def test_a_topic_with_a_retained_message_stays_when_the_message_has_gone_from_its_queue() -> None:
    rig = Rig(default_queues=1, empty_topic_s=EMPTY_S, retention_bytes=1 << 17)
    rig.ask(append(Message("a", b"1", retain=True)))
    while rig.ask(QueryBounds(("a:0",))).bounds[0].min < 1:
        rig.ask(append(Message("other", bytes(50_000))))
        rig.dispatch.tick()
    assert after(rig, 2 * EMPTY_S) == ["a", "other"]


def test_filters_for_more_than_one_topic_keep_none() -> None:
    rig = rig_with("a")
    rig.ask(OpenFilters("~session/1", ("#", "+/a")))
    assert after(rig, 2 * EMPTY_S) == []


def test_what_comes_to_be_used_while_it_is_looked_at_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empty, "GOES_MAX", 1)
    rig = rig_with("a", "b", "c")
    while rig.service.figures()["penstock_empty_topics_deleted_total"] < 1:
        rig.clock.now += 1.0
        rig.dispatch.tick()
    rig.ask(DescribeTopic("b"))
    rig.ask(append(Message("c", b"x")))
    assert after(rig, 20) == ["b", "c"]


def test_many_topics_go_a_few_at_a_time_and_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empty, "SLICE", 7)
    rig = rig_with(topics_max=50)
    for number in range(45):
        assert rig.ask(DescribeTopic(f"t{number}", create=True, is_anonymous=True)).queues
    before = 45
    while before:
        rig.clock.now += 1.0
        rig.dispatch.tick()
        now = len(rig.state.topics)
        assert before - now <= empty.GOES_MAX
        before = now
    assert rig.ask(DescribeTopic("new", create=True, is_anonymous=True)).queues


def test_a_full_disk_has_empty_topics_wait() -> None:
    rig = rig_with("a")
    rig.disk.capacity = rig.disk.used()
    while not isinstance(rig.ask(append(Message("b", b""))), StorageFull):
        pass
    assert "a" in after(rig, 2 * EMPTY_S)
    rig.disk.capacity = None
    after(rig, 2 * EMPTY_S)
    assert isinstance(rig.ask(DescribeTopic("a")), TopicNotFound)
