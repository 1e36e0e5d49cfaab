"""MQTT 5, 4.7 (3.1.1: the same): topic names and filters, from the bytes to the rules that judge them."""

from __future__ import annotations

import pytest

from gateway.mqtt.packets import Publish, Subscribe
from tests.conformance.wire_cases import PROTOCOL_ERROR, case, judge, packet, taken, text
from topicmap.names import InvalidName, check_filter, check_name, matches, parse_share


@pytest.mark.parametrize(
    "name",
    [
        case("lone +", "+", mqtt=("4.7.0-1",), old=("4.7.1-1",)),
        case("lone #", "#", mqtt=("4.7.0-1",), old=("4.7.1-1",)),
        case("trailing #", "a/#", mqtt=("4.7.0-1",), old=("4.7.1-1",)),
        case("empty", "", mqtt=("4.7.3-1",), old=("4.7.3-1",)),
    ],
)
def test_a_topic_name_without_characters_or_with_wildcards_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        check_name(name)
    assert judge(4, packet(0x30, text(name))).reason_code == PROTOCOL_ERROR


@pytest.mark.parametrize(
    "topic_filter",
    [
        case("# not last", "a/#/b", mqtt=("4.7.1-1",), old=("4.7.1-2",)),
        case("# behind text", "a#", mqtt=("4.7.1-1",), old=("4.7.1-2",)),
        case("# behind +", "+#", mqtt=("4.7.1-1",), old=("4.7.1-2",)),
        case("+ behind text", "a+", mqtt=("4.7.1-2",), old=("4.7.1-3",)),
        case("+ before text", "a/+b/c", mqtt=("4.7.1-2",), old=("4.7.1-3",)),
        case("two +", "++", mqtt=("4.7.1-2",), old=("4.7.1-3",)),
    ],
)
def test_a_filter_with_a_misplaced_wildcard_is_read_and_then_refused_alone(topic_filter: str) -> None:
    with pytest.raises(InvalidName):
        check_filter(topic_filter)
    subscribe = taken(4, packet(0x82, b"\x00\x01", text(topic_filter), b"\x00", text("ok"), b"\x00"))
    assert isinstance(subscribe, Subscribe)
    assert [one.filter for one in subscribe.subscriptions] == [topic_filter, "ok"]


@pytest.mark.mqtt("4.7.1-1", "4.7.1-2", old=("4.7.1-2", "4.7.1-3"))
@pytest.mark.parametrize(
    ("topic_filter", "matching", "other"),
    [
        ("sport/tennis/player1/#", ["sport/tennis/player1", "sport/tennis/player1/score/wimbledon"], ["sport/tennis"]),
        ("#", ["a", "/", "a/b/c", "/a"], ["$SYS", "$SYS/a"]),
        ("sport/tennis/+", ["sport/tennis/player1", "sport/tennis/"], ["sport/tennis", "sport/tennis/a/b"]),
        ("+", ["finance", "a b"], ["/finance", "a/", "$SYS"]),
        ("+/+", ["/finance", "a/b", "/", "a/"], ["finance", "a/b/c", "$SYS/a"]),
        ("/+", ["/finance", "/"], ["finance", "//"]),
        ("+/tennis/#", ["sport/tennis", "sport/tennis/x"], ["sport/golf", "$x/tennis"]),
    ],
)
@pytest.mark.mqtt("4.7.1")
def test_wildcards_match_whole_levels(topic_filter: str, matching: list[str], other: list[str]) -> None:
    check_filter(topic_filter)
    assert [name for name in matching if not matches(topic_filter, name)] == []
    assert [name for name in other if matches(topic_filter, name)] == []


@pytest.mark.mqtt("4.7.2-1", old=("4.7.2-1",))
def test_only_a_filter_that_begins_with_the_dollar_level_sees_it() -> None:
    names = ["$SYS/monitor/Clients", "$SYS", "$"]
    assert [
        name for name in names for topic_filter in ("#", "+/monitor/Clients", "+", "+/#") if matches(topic_filter, name)
    ] == []
    assert matches("$SYS/#", "$SYS")
    assert matches("$SYS/monitor/+", "$SYS/monitor/Clients")


@pytest.mark.mqtt("4.7.3-4", old=("4.7.3-4",))
@pytest.mark.parametrize(
    ("one", "other"),
    [("a/b", "a/b/"), ("a/b", "/a/b"), ("A", "a"), ("a", "a "), ("a//b", "a/b"), ("\ufeffa", "a"), ("é", "e\u0301")],
)
def test_nothing_is_normalised(one: str, other: str) -> None:
    assert matches(one, one)
    assert not matches(one, other)
    assert not matches(other, one)
    assert taken(4, packet(0x30, text(one))) == Publish(one, b"")


@pytest.mark.mqtt("4.7.3-3", old=("4.7.3-3",))
def test_a_name_of_65535_bytes_can_be_read() -> None:
    name = "a" * 65_535
    assert taken(4, packet(0x30, text(name))) == Publish(name, b"")


@pytest.mark.mqtt("4.8.2-1", "4.8.2-2")
@pytest.mark.parametrize("topic_filter", ["$share/", "$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/a#/b"])
def test_a_malformed_shared_subscription_is_refused(topic_filter: str) -> None:
    with pytest.raises(InvalidName):
        parse_share(topic_filter)
