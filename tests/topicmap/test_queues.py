"""Topics of MQTT names, and the names of queues."""

from __future__ import annotations

import hashlib

import pytest

from topicmap.names import InvalidName
from topicmap.queues import (
    Placement,
    Rule,
    TopicMap,
    TopicQueue,
    check_topic,
    decode_level,
    encode_level,
    filter_queue,
    is_system,
    parse_topic_queue,
    queue_for_key,
    readable,
    topic_named,
    topic_queue,
)

LEVELS = [
    ("sensors", "sensors"),
    ("a_b-C9", "a_b-C9"),
    ("", "%"),
    ("%", "%25"),
    ("a%b", "a%25b"),
    ("%41", "%2541"),
    ("a b", "a%20b"),
    ("a|b", "a%7Cb"),
    ("$SYS", "%24SYS"),
    ("%sys%", "%25sys%25"),
    ("é", "%C3%A9"),
    ("a:0", "a%3A0"),
    ("~filter", "%7Efilter"),
]


@pytest.mark.parametrize(("level", "topic"), LEVELS)
def test_a_first_level_becomes_a_topic_and_comes_back(level: str, topic: str) -> None:
    assert encode_level(level) == topic
    assert decode_level(topic) == level
    check_topic(topic)


@pytest.mark.parametrize("topic", ["", "a b", "%4", "%zz", "%41", "%c3%a9", "%C3", "a%", "é", "%sys%x", "%00%", "a|b"])
def test_a_string_that_is_no_encoded_level_is_refused(topic: str) -> None:
    with pytest.raises(InvalidName):
        decode_level(topic)


LONG_LEVELS = [
    ("a" * 256, "a" * 190),
    ("é" * 43, "%C3%A9" * 31),
    ("日" * 30, "%E6%97%A5" * 21),
    ("日" * 21 + "ab" * 40, "%E6%97%A5" * 21 + "a"),
    (" " * 100, "%20" * 63),
]


@pytest.mark.parametrize(("level", "begun"), LONG_LEVELS)
def test_a_long_first_level_becomes_its_beginning_and_its_digest(level: str, begun: str) -> None:
    topic = encode_level(level)
    assert topic == f"{begun}|{hashlib.sha256(level.encode()).hexdigest()}"
    check_topic(topic)
    with pytest.raises(InvalidName):
        decode_level(topic)


def test_a_level_whose_topic_has_255_bytes_keeps_the_topic_that_it_always_had() -> None:
    assert encode_level("a" * 255) == "a" * 255
    assert encode_level("é" * 42) == "%C3%A9" * 42


READABLE = [
    ("sensors", "sensors"),
    ("%", ""),
    ("%E6%97%A5", "日"),
    (encode_level("日" * 30), "日" * 21 + "…"),
    (encode_level("x" * 300), "x" * 190 + "…"),
    ("a|b", "a|b"),
    ("mqtt|sessions", "mqtt|sessions"),
    ("%zz", "%zz"),
    ("%E6|" + "0" * 64, "%E6|" + "0" * 64),
]


@pytest.mark.parametrize(("topic", "shown"), READABLE)
def test_a_topic_is_shown_as_its_first_level(topic: str, shown: str) -> None:
    assert readable(topic) == shown


NAMED = [
    ("sensors", "sensors"),
    ("a%20b", "a%20b"),
    ("a|b", "a|b"),
    ("a b", "a%20b"),
    ("a.b", "a%2Eb"),
    ("é%", "%C3%A9%25"),
    ("~x:0", "%7Ex%3A0"),
    ("x" * 256, encode_level("x" * 256)),
]


@pytest.mark.parametrize(("name", "topic"), NAMED)
def test_a_program_names_a_topic_by_itself_or_by_its_first_level(name: str, topic: str) -> None:
    assert topic_named(name) == topic
    assert topic_named(topic) == topic


@pytest.mark.parametrize("name", ["", "a/b", "/", "+", "a#", "a\tb", "\x7f", "\ud800", "é" * 40_000])
def test_a_name_of_another_kind_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(InvalidName, match="one level of an MQTT name"):
        topic_named(name)


def test_by_default_the_first_level_is_the_topic_and_the_client_is_the_key() -> None:
    plain = TopicMap()
    assert plain.place("sensors/d7/temperature", "d7") == Placement("sensors", "d7")
    assert plain.place("sensors/d7/temperature") == Placement("sensors", "sensors/d7/temperature")
    assert plain.place("/a/b", "c").topic == "%"
    assert plain.place("sensors", "c").topic == "sensors"


def test_the_first_rule_that_matches_places_a_name() -> None:
    ruled = TopicMap(
        [
            Rule("sensors/+/temperature", "telemetry", 1),
            Rule("sensors/#", "rest"),
            Rule("alarms/#", "alarms", 9),
        ]
    )
    assert ruled.place("sensors/d7/temperature", "c") == Placement("telemetry", "d7")
    assert ruled.place("sensors/d7/humidity", "c") == Placement("rest", "c")
    assert ruled.place("alarms/x", "c") == Placement("alarms", "c"), "a level that is not there gives the default key"
    assert ruled.place("alarms/x") == Placement("alarms", "alarms/x")
    assert ruled.place("other/x", "c") == Placement("other", "c")
    assert ruled.place("sensors//temperature", "c") == Placement("telemetry", "c"), "an empty level is no key"


def test_a_rule_catches_dollar_names_only_if_it_names_them() -> None:
    ruled = TopicMap([Rule("#", "everything"), Rule("$own/#", "own")])
    assert ruled.place("$SYS/x", "c").topic == "%24SYS"
    assert ruled.place("$own/x", "c").topic == "own"


@pytest.mark.parametrize("rule", [Rule("a/#/b", "t"), Rule("a", "no topic"), Rule("a", "%sys%offsets"), Rule("", "t")])
def test_a_rule_that_is_not_legal_is_refused(rule: Rule) -> None:
    with pytest.raises(InvalidName):
        TopicMap([rule])


def test_queues_have_names() -> None:
    assert topic_queue("telemetry", 0) == "telemetry:0"
    assert filter_queue("a/+") == "~filter:a/+"


@pytest.mark.parametrize(
    ("key", "queue"),
    [
        ("telemetry:0", TopicQueue("telemetry", 0)),
        ("%sys%offsets:12", TopicQueue("%sys%offsets", 12)),
    ],
)
def test_a_queue_name_is_read(key: str, queue: TopicQueue) -> None:
    assert parse_topic_queue(key) == queue


@pytest.mark.parametrize(
    "key",
    [
        *["", "telemetry", "telemetry:", ":0", "t:-1", "t:+1", "t:01", "t: 1", "t:1_0", "t:99999999999", "t:²"],
        *["a/b:0", "~filter:a", "~filter:a:0", "~", "t:1\n"],
    ],
)
def test_any_other_string_is_no_queue_name(key: str) -> None:
    with pytest.raises(InvalidName):
        parse_topic_queue(key)


@pytest.mark.parametrize("topic", ["", "a/b", "a b", "é", "a" * 256, "~a", "a:0", "%sys%", "%sys%x", "a\n"])
def test_a_topic_that_users_may_not_have_is_refused(topic: str) -> None:
    with pytest.raises(InvalidName):
        check_topic(topic)


def test_the_brokers_own_topics_are_known_by_their_prefix() -> None:
    assert is_system("%sys%offsets")
    assert not is_system("sys")


def test_the_queue_of_a_key_never_changes_between_versions() -> None:
    assert [queue_for_key(key, 16) for key in ("", "d7", "42", "温度")] == [0, 3, 8, 2]
    assert [queue_for_key(key.encode(), 16) for key in ("", "d7", "42", "温度")] == [0, 3, 8, 2]


def test_keys_spread_over_all_queues() -> None:
    counts = [0] * 8
    for number in range(8000):
        counts[queue_for_key(f"device-{number}", 8)] += 1
    assert min(counts) > 800


@pytest.mark.parametrize(
    ("filter", "topic"),
    [
        ("a", "a"),
        ("a/#", "a"),
        ("/b", "%"),
        ("$SYS/#", "%24SYS"),
        ("+/x", None),
        ("#", None),
        ("site/+/temperature", "telemetry"),
        ("site/#", None),
        ("site/a/door", "site"),
        ("+/log/x", "logs"),
    ],
)
def test_a_filter_has_one_topic_where_first_level_or_rule_say_so(filter: str, topic: str | None) -> None:
    rules = (Rule("site/+/temperature", "telemetry"), Rule("+/log/#", "logs"), Rule("b/c", "special"))
    if topic == "a":
        rules = rules[:1]
    assert TopicMap(rules).topic_of(filter) == topic
