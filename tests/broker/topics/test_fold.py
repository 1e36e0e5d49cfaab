from __future__ import annotations

from broker.topics.fold import Topics
from penstock.protocol.requests.topics import TopicInfo
from tests.broker.facts import take


def test_a_topic_is_what_its_last_record_says() -> None:
    topics = Topics()
    for topic in (TopicInfo("a", 1, "disk"), TopicInfo("b", 2, "cache"), TopicInfo("a", 4, "cache")):
        take(topics, topics.fact(topic))
    assert sorted(topics) == [TopicInfo("a", 4, "cache"), TopicInfo("b", 2, "cache")]
    assert (len(topics), topics.version, topics.get("c")) == (2, 3, None)


def test_what_has_changed_since_a_version_is_told_and_little_more() -> None:
    topics, copy = Topics(), Topics()
    for name in "abcd":
        take(topics, [name, 1, "disk"])
    copy.restore(topics.snapshot())
    for one in (topics, copy):
        assert one.since(4) == []
        take(one, ["b", 2, "disk"])
        assert [topic.topic for topic in one.since(4)] == ["b"]
        take(one, ["b", 3, "disk"])
        take(one, ["e", 1, "disk"])
        assert {topic.topic for topic in one.since(5)} == {"b", "e"}
        assert {"b", "e"} <= {topic.topic for topic in one.since(4)} < {*"abcde"}


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
