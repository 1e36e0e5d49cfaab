"""Pulls by MQTT name: the same messages with the filter's queue as without it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.messages import filtering
from broker.messages.filtering import LOOK_MAX
from penstock.errors import OffsetOutOfRange
from penstock.protocol.message import Message, decode_batch
from penstock.protocol.requests.filters import CloseFilters, OpenFilters
from penstock.protocol.requests.messages import Pull, Pulled
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig, append, bodies, now

FILTER = "t/+/temp"
NAMES = ("t/a/temp", "t/b/temp", "t/a/hum", "u/a/temp")


def made(**options: Any) -> Rig:
    rig = Rig(**options)
    rig.ask(CreateTopic("t", 2, "cache"))
    rig.ask(CreateTopic("u", 1, "cache"))
    return rig


def pulled(rig: Rig, queue: str, offset: int, filter: str = FILTER, **options: Any) -> Pulled:
    return now(rig.handle(Pull(queue, offset, names=(filter,), **options)))


def test_an_open_filter_leads_past_any_number_of_other_messages_in_one_pull() -> None:
    rig = made()
    rig.ask(OpenFilters("me", (FILTER,)))
    other = [Message("t", b"", key="k", mqtt_topic="t/a/hum")] * (LOOK_MAX // 4)
    for _ in range(5):
        rig.ask(append(*other))
    rig.ask(append(Message("t", b"found", key="k", mqtt_topic="t/a/temp")))
    (queue,) = [f"t:{at}" for at in (0, 1) if now(rig.handle(Pull(f"t:{at}", 0, count_max=1))).count]
    found = pulled(rig, queue, 0)
    assert bodies(found) == [b"found"]
    assert [offset for offset, _ in decode_batch(found.count, found.body)] == [5 * (LOOK_MAX // 4)]
    assert found.next == found.end == 5 * (LOOK_MAX // 4) + 1
    rig.ask(CloseFilters("me", (FILTER,)))
    without = pulled(rig, queue, 0)
    assert (without.count, without.next) == (0, LOOK_MAX)
    assert isinstance(rig.ask(Pull(queue, found.end + 1, names=(FILTER,))), OffsetOutOfRange)


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(("append", "append", "append", "open", "close", "restart")), st.integers(0, 255)),
    max_size=25,
)


@given(steps=STEPS, count_max=st.integers(1, 4), chunk=st.integers(1, 5), filter=st.sampled_from((FILTER, "+/a/temp")))
@settings(max_examples=60, deadline=None)
@pytest.mark.interpreted
def test_pulls_bring_each_message_that_matches_once_whatever_is_opened_and_closed(
    steps: list[Step], count_max: int, chunk: int, filter: str
) -> None:
    rig, body = made(), 0
    for what, seed in steps:
        if what == "append":
            batch = []
            for at in range(1 + seed % 5):
                name = NAMES[(seed + at * at) % len(NAMES)]
                batch.append(Message(name[0], str(body).encode(), key=str(seed % 3), mqtt_topic=name))
                body += 1
            rig.ask(append(*batch))
        elif what == "open":
            rig.ask(OpenFilters("me", (filter,)))
        elif what == "close":
            rig.ask(CloseFilters("me", (filter,)))
        else:
            rig = rig.restarted()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filtering, "CHUNK", chunk)
        for queue in ("t:0", "t:1", "u:0"):
            all_of_it = now(rig.handle(Pull(queue, 0, bytes_max=1 << 20)))
            every = decode_batch(all_of_it.count, all_of_it.body)
            like = re.compile(filter.replace("+", "[^/]+"))
            wanted = [(offset, message.body) for offset, message in every if like.fullmatch(message.mqtt_topic)]
            offset, brought = 0, []
            while offset < all_of_it.end:
                found = pulled(rig, queue, offset, filter, count_max=count_max)
                brought += [(at, message.body) for at, message in decode_batch(found.count, found.body)]
                assert found.next > offset
                offset = found.next
            assert brought == wanted
