"""Names of topics as programs give them."""

from __future__ import annotations

import pytest

from penstock.blocking import Consumer, Reader, find
from penstock.errors import InvalidRequest, InvalidTopic, ReservedName
from penstock.protocol.topic_names import check_publishable, topic_of, topics_of
from topicmap.queues import encode_level


def test_each_topic_is_read_once_however_it_is_named() -> None:
    assert topics_of(["é", "%C3%A9", "orders", "é"]) == ("%C3%A9", "orders")
    assert topics_of("x" * 300) == (encode_level("x" * 300),)
    with pytest.raises(InvalidRequest, match="one topic or more"):
        topics_of([])


def test_an_mqtt_name_is_refused_with_its_first_level_as_a_hint() -> None:
    with pytest.raises(InvalidTopic, match="one level of an MQTT name") as caught:
        topic_of("a/b")
    assert "first level" in caught.value.hint
    with pytest.raises(InvalidTopic) as caught:
        topic_of("a\nb")
    assert caught.value.hint == ""


def test_consumers_readers_and_searches_refuse_what_names_no_topic_before_they_connect() -> None:
    with pytest.raises(InvalidTopic):
        Consumer("g", ["orders", "a/b"])
    with pytest.raises(InvalidTopic):
        Reader("+")
    with pytest.raises(InvalidTopic):
        find("a/b", "k")
    assert Consumer("g", ["é"]).topics == ("%C3%A9",)
    assert Reader("é").topic == "%C3%A9"


def test_what_programs_may_not_publish_under_is_named() -> None:
    check_publishable("orders", "")
    check_publishable("%24reply", "$reply/abc")
    for topic, name, said in (
        ("%RETRY%g", "", "only the broker stores messages in '%RETRY%g'"),
        ("orders", "$SYS/x", r"only gateways publish under '\$SYS/x'"),
        ("%24SYS", "", "only gateways publish under '%24SYS'"),
        ("%24reply", "$reply", r"\$reply is no topic"),
    ):
        with pytest.raises(ReservedName, match=said):
            check_publishable(topic, name)
