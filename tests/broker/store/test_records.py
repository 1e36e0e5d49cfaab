"""The border's values: system topics have one prefix, and the default level is the safe one."""

from __future__ import annotations

from broker.store.records import KEYFRAME_TOPIC, NO_CHANGE, SEAL_TOPIC
from topicmap.queues import SYSTEM_PREFIX
from topicmap.queues import SYSTEM_PREFIX as NAMED_PREFIX


def test_the_stores_own_records_are_system_records() -> None:
    assert KEYFRAME_TOPIC.startswith(SYSTEM_PREFIX)
    assert SEAL_TOPIC.startswith(SYSTEM_PREFIX)
    assert SYSTEM_PREFIX == NAMED_PREFIX


def test_no_change_changes_nothing() -> None:
    assert (NO_CHANGE.opened, NO_CHANGE.ended) == ((), ())
