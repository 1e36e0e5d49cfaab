from __future__ import annotations

import pytest

from broker.store.records import Change
from broker.topics import fold
from broker.topics.fold import Topics
from penstock.protocol.requests.topics import TopicInfo
from tests.broker.facts import take


def test_a_topic_is_what_its_last_record_says() -> None:
    topics = Topics()
    for topic in (TopicInfo("a", 1, "disk"), TopicInfo("b", 2, "cache"), TopicInfo("a", 4, "cache")):
        take(topics, topics.making(topic))
    assert sorted(topics) == [TopicInfo("a", 4, "cache"), TopicInfo("b", 2, "cache")]
    assert (len(topics), topics.version, topics.get("c")) == (2, 3, None)


def test_what_has_changed_since_a_version_is_told_and_nothing_more() -> None:
    topics, copy = Topics(), Topics()
    for name in "abcd":
        take(topics, [name, 1, "disk"])
    copy.restore(topics.snapshot())
    for one in (topics, copy):
        assert one.since(4) == []
        take(one, ["b", 2, "disk"])
        assert one.since(4) == [TopicInfo("b", 2, "disk")]
        take(one, ["b", 3, "disk"])
        take(one, ["e", 1, "disk"])
        deleted(one, "c", 1)
        assert {topic.topic for topic in one.since(5) or ()} == {"b", "c", "e"}
        assert [topic.topic for topic in one.since(6) or ()] == ["c", "e"]
    assert copy.since(3) is None, "that is not known behind a restore"


def test_a_snapshot_restores_topics_and_version() -> None:
    topics, copy = Topics(), Topics()
    take(topics, ["b", 1, "disk"])
    take(topics, ["a", 1, "disk"])
    copy.restore(topics.snapshot())
    assert (sorted(copy), copy.version, copy.snapshot()) == (sorted(topics), 2, topics.snapshot())


def test_what_a_newer_broker_says_of_a_topic_beyond_our_fields_is_passed_over() -> None:
    topics = Topics()
    take(topics, ["a", 1, "disk", "something new"])
    assert list(topics) == [TopicInfo("a", 1, "disk")]


def deleted(topics: Topics, topic: str, *ends: int, position: int = 0) -> Change:
    return take(topics, topics.deleting(topic, ends), position)


def test_a_deleted_topic_is_gone_and_its_queues_with_it() -> None:
    topics = Topics()
    take(topics, topics.making(TopicInfo("a", 2, "disk"), by_message=True))
    change = deleted(topics, "a", 5, 0, position=70)
    assert (list(topics), topics.by_message, topics.get("a")) == ([], [], None)
    assert change.ended == ("a:0", "a:1")
    assert [event[:2] for event in change.events] == [("a", ("a:0", "a:1"))]
    assert change.events[0].position > 70
    assert topics.since(1) == [TopicInfo("a", 0, "")]


def test_a_topic_that_is_made_again_begins_where_it_ended_whatever_number_of_queues_it_had() -> None:
    topics = Topics()
    take(topics, topics.making(TopicInfo("a", 3, "disk")))
    deleted(topics, "a", 5, 6, 7)
    change = take(topics, topics.making(TopicInfo("a", 1, "disk")))
    assert [made.first for made in change.made] == [5]
    assert topics.ended("a") == {1: 6, 2: 7}
    deleted(topics, "a", 9)
    assert topics.ended("a") == {0: 9, 1: 6, 2: 7}
    change = take(topics, topics.making(TopicInfo("a", 4, "disk"), by_message=True))
    assert [made.first for made in change.made] == [9, 6, 7, 0]
    assert topics.ended("a") == {}
    assert topics.is_by_message("a")


def test_a_topic_that_is_changed_keeps_its_beginnings_and_may_become_one_made_by_hand() -> None:
    topics = Topics()
    deleted(topics, "a", 5)
    for by_message in (True, False):
        change = take(topics, topics.making(TopicInfo("a", 1, "disk"), by_message=by_message))
        assert [made.first for made in change.made] == [5]
        assert topics.is_by_message("a") == by_message


def test_what_is_forgotten_of_deleted_topics_counts_for_all_that_are_made_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fold, "GONE_MAX", 2)
    topics = Topics()
    for name, end in (("a", 30), ("b", 10), ("never", 0), ("c", 20)):
        deleted(topics, name, end)
    copy = Topics()
    copy.restore(topics.snapshot())
    for one in (topics, copy):
        assert [one.ended(name) for name in ("a", "b", "c")] == [{}, {0: 10}, {0: 20}]
        begins = {name: take(one, one.making(TopicInfo(name, 1, "disk"))).made[0].first for name in ("a", "b", "new")}
        assert begins == {"a": 30, "b": 10, "new": 30}
    assert topics.snapshot() == copy.snapshot()


def test_a_snapshot_restores_how_topics_were_made_and_where_they_begin() -> None:
    topics, copy = Topics(), Topics()
    deleted(topics, "a", 5)
    deleted(topics, "gone", 7, 8)
    for name in "ab":
        take(topics, topics.making(TopicInfo(name, 1, "disk"), by_message=True))
    copy.restore(topics.snapshot())
    assert copy.snapshot() == topics.snapshot()
    assert (copy.by_message, copy.ended("gone")) == (["a", "b"], {0: 7, 1: 8})
    for one in (topics, copy):
        deleted(one, "a", 4)  # the record's end is less than the beginning: nothing was stored
        assert one.ended("a") == {0: 5}


def test_the_state_of_an_older_broker_is_restored() -> None:
    topics = Topics()
    topics.restore([3, [["a", 1, "disk"]]])
    assert (list(topics), topics.version, topics.by_message) == ([TopicInfo("a", 1, "disk")], 3, [])


def test_changes_that_are_too_many_to_keep_are_not_told_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "CHANGED_MAX", 2)
    topics = Topics()
    for name in "abc":
        take(topics, [name, 1, "disk"])
    assert topics.since(0) is None
    assert [topic.topic for topic in topics.since(1) or ()] == ["c", "b"]
    topics.restore(topics.snapshot())
    assert (topics.since(2), topics.since(3)) == (None, [])
