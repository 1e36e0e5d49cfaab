"""Topics, as the first peers spoke of them."""

from __future__ import annotations

from penstock.protocol.requests import topics
from penstock.protocol.requests.topics import Bounds, CreateTopic, DeleteTopic, DescribeTopic, TopicDetail
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    assert codes(topics) == {
        30: "CreateTopic",
        31: "DescribeTopic",
        32: "ListTopics",
        33: "DeleteTopic",
        34: "ChangeTopic",
        35: "PurgeTopic",
        36: "AllowBroker",
        37: "QueryAllowed",
        38: "CountTopics",
    }


def test_a_topic_that_is_created_by_its_name_takes_the_defaults() -> None:
    assert asked(30, "t") == CreateTopic("t", queues=0, level="")


def test_describing_a_topic_creates_none_unless_asked() -> None:
    assert asked(31, "t") == DescribeTopic("t", create=False, gone=False)


def test_a_topic_is_deleted_by_its_name() -> None:
    assert asked(33, "t") == DeleteTopic("t")


def test_the_bounds_of_each_queue_come_with_the_topic() -> None:
    detail = TopicDetail("t", 1, "disk", (Bounds("t:0", 2, 9),))
    assert answered(DescribeTopic, "t", 1, "disk", [["t:0", 2, 9]]) == detail
    assert detail.bounds[0].first == 0
