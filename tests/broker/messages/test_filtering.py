"""Pulls with a filter: what comes, how far a pull looks, and where the next one goes on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.messages import filtering
from broker.messages.filtering import LOOK_BYTES_MAX, LOOK_MAX, allowed_selector
from broker.settings import BrokerSettings
from penstock.errors import InvalidFilter, InvalidRequest, InvalidTopic
from penstock.protocol.message import Message, decode_batch
from penstock.protocol.requests.messages import NAMES_MAX, Pull, Pulled
from penstock.protocol.requests.topics import CreateTopic
from penstock.protocol.runs import checksum_of
from tests.broker.broker_rig import Rig, append, bodies, now, parked
from topicmap.queues import retry_topic


def made(*messages: Message, **options: object) -> Rig:
    rig = Rig(**options)  # type: ignore[arg-type]
    rig.ask(CreateTopic("t", 1, "cache"))
    for first in range(0, len(messages), 5000):
        rig.ask(append(*messages[first : first + 5000]))
    return rig


def level(number: int, body: bytes = b"") -> Message:
    return Message("t", body or str(number).encode(), properties={"level": str(number)})


def pulled(rig: Rig, offset: int, filter: str, **options: int) -> Pulled:
    return now(rig.handle(Pull("t:0", offset, filter=filter, **options)))  # type: ignore[arg-type]


def test_a_pull_with_a_filter_passes_over_other_messages_and_says_how_far_it_came() -> None:
    rig = made(*[level(number) for number in (1, 7, 2, 8, 3)])
    found = pulled(rig, 0, "level > 5")
    assert bodies(found) == [b"7", b"8"]
    assert [offset for offset, _ in decode_batch(found.count, found.body)] == [1, 3]
    assert (found.next, found.min, found.end) == (5, 0, 5)


def test_a_filter_and_tags_both_count() -> None:
    rig = made(*[Message("t", tag.encode() + b"1", tag=tag, properties={"a": "1"}) for tag in "xyx"])
    found = now(rig.handle(Pull("t:0", 0, tags=("x",), filter="a = 1 AND TAGS = 'x'")))
    assert bodies(found) == [b"x1", b"x1"]


def test_a_full_reply_ends_before_the_next_message_that_matches() -> None:
    rig = made(*[level(number % 10) for number in range(40)])
    first = pulled(rig, 0, "level = 3", count_max=2)
    assert (bodies(first), first.next) == ([b"3", b"3"], 23)
    second = pulled(rig, first.next, "level = 3", bytes_max=1)
    assert (bodies(second), second.next) == ([b"3"], 33)


def test_a_parked_pull_hears_of_the_first_message_that_it_passes_over() -> None:
    rig = made(level(1))
    answers = rig.submit(Pull("t:0", 1, filter="level > 5", wait_s=10.0))
    assert answers == []
    rig.ask(append(level(2)))
    assert [(one.count, one.next) for one in answers] == [(0, 2)]


def test_a_pull_without_any_message_is_parked() -> None:
    rig = made()
    assert parked(rig.handle(Pull("t:0", 0, filter="level > 5", wait_s=10.0)))


def test_a_wrong_filter_is_refused() -> None:
    assert isinstance(made().ask(Pull("t:0", 0, filter="level >")), InvalidFilter)


def test_a_pull_looks_at_so_many_messages_at_most() -> None:
    rig = made(*[level(1)] * (LOOK_MAX + 10))
    found = pulled(rig, 0, "level > 5")
    assert (found.count, found.next) == (0, LOOK_MAX)
    long = " OR ".join(["level > 5"] * 40)  # 121 nodes
    assert pulled(rig, 0, long).next == LOOK_MAX * 16 // 121


def test_a_pull_looks_at_so_many_bytes_at_most() -> None:
    rig = made(*[level(1, bytes(1 << 16))] * 90, segment_bytes=1 << 24)
    found = pulled(rig, 0, "level > 5")
    assert found.count == 0
    assert LOOK_BYTES_MAX >> 16 <= found.next + 1 < 90


def test_bodies_are_looked_into_only_where_it_is_allowed() -> None:
    config = BrokerSettings(filter_bodies=("t",))
    assert allowed_selector(config, "$.a = 1", "t:0")
    with pytest.raises(InvalidRequest, match=r"bodies of topic u .its broker's filter_bodies"):
        allowed_selector(config, "$.a = 1", "u:0")
    assert allowed_selector(BrokerSettings(filter_bodies=("*",)), "$.a = 1", "u:0")
    assert isinstance(made().ask(Pull("t:0", 0, filter="$.a = 1")), InvalidRequest)


def test_what_a_group_gave_back_comes_again_whatever_its_filter_says() -> None:
    assert allowed_selector(BrokerSettings(), "$.a = 1", f"{retry_topic('g')}:0") is None
    with pytest.raises(InvalidFilter):
        allowed_selector(BrokerSettings(), "a =", f"{retry_topic('g')}:0")


def test_a_long_reply_has_the_checksum_of_its_body() -> None:
    rig = made(*[level(7)] * 200)
    found = pulled(rig, 0, "level > 5")
    assert (found.count, found.checksum) == (200, checksum_of(found.body))
    assert pulled(rig, 0, "level > 5", count_max=2).checksum == 0


def test_a_field_of_a_body_chooses_messages() -> None:
    rig = made(Message("t", b'{"a": 1}'), Message("t", b"no JSON"), Message("t", b'{"a": 2}'), filter_bodies=("t",))
    assert bodies(pulled(rig, 0, "$.a = 2")) == [b'{"a": 2}']


@given(
    levels=st.lists(st.integers(0, 3), max_size=60),
    count_max=st.integers(1, 5),
    bytes_max=st.integers(1, 1000),
    chunk=st.integers(1, 20),
)
@settings(max_examples=30)
@pytest.mark.interpreted
def test_pulls_one_behind_the_other_bring_each_message_that_matches_once(
    levels: list[int], count_max: int, bytes_max: int, chunk: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filtering, "CHUNK", chunk)
        rig = made(*[level(number) for number in levels])
        offset, brought = 0, []
        while offset < len(levels):
            found = pulled(rig, offset, "level = 2", count_max=count_max, bytes_max=bytes_max)
            brought += [at for at, _ in decode_batch(found.count, found.body)]
            assert found.count <= count_max
            assert found.next > offset
            offset = found.next
    assert brought == [at for at, number in enumerate(levels) if number == 2]


def named(*names: str) -> list[Message]:
    return [Message("t", str(at).encode(), mqtt_topic=name) for at, name in enumerate(names)]


def test_names_choose_messages_by_mqtt_filters_and_a_selector_beside_them() -> None:
    rig = made(*named("t/a/temp", "t/a/hum", "t/b/temp", "t/a/temp/x"), Message("t", b"plain"))
    assert bodies(now(rig.handle(Pull("t:0", 0, names=("t/+/temp",))))) == [b"0", b"2"]
    assert bodies(now(rig.handle(Pull("t:0", 0, names=("t/+/hum", "t"))))) == [b"1", b"plain"]
    both = now(rig.handle(Pull("t:0", 0, names=("t/+/temp",), filter="MQTT_TOPIC LIKE '%b%'")))
    assert (bodies(both), both.next) == ([b"2"], 5)


def test_a_pull_with_wrong_or_too_many_names_is_refused() -> None:
    assert isinstance(made().ask(Pull("t:0", 0, names=("a/#/b",))), InvalidTopic)
    assert isinstance(made().ask(Pull("t:0", 0, names=("a",) * (NAMES_MAX + 1))), InvalidRequest)
