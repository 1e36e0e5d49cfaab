"""Bugs of what is committed and on which disks, each planted and caught by the tests of the commit rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.kernel import outcomes
from broker.kernel.outcomes import AfterQuorum, AfterSync, Now
from broker.net.flusher import Flusher
from broker.net.lead import Lead
from broker.store.level import Level
from broker.store.message_store import MessageStore
from penstock.protocol.requests.request import Result
from tests.broker.kernel import test_commit, test_outcomes

sound_mark_durable = MessageStore.mark_durable


def what_this_disk_has_is_read_whatever_is_committed(self: Flusher, lead: Lead) -> None:
    self._store.mark_committed(self._store.durable)
    lead.dispatch.reached(self._store.durable, self._rule.committed(self._store.durable))


def what_is_durable_is_applied_at_once(self: MessageStore, point: int) -> None:
    sound_mark_durable(self, point)
    self._index.mark_readable(point)


def a_copy_that_lags_is_left_out(self: Flusher, lead: Lead) -> None:
    store = self._store
    store.mark_committed(max(store.committed, self._rule.committed(store.durable)))
    lead.dispatch.reached(store.durable, store.durable)


def a_quorum_is_this_disk(level: Level, result: Result, point: int) -> Any:
    return Now(result) if level is Level.CACHE else AfterSync(result, point)


def the_disk_is_a_cache(level: Level, result: Result, point: int) -> Any:
    return AfterQuorum(result, point) if level is Level.QUORUM else Now(result)


def a_level_outcome(after: Any) -> None:
    """The test of levels, with a bug in place of the function that it has imported."""
    for level, kind in ((Level.CACHE, Now), (Level.DISK, AfterSync), (Level.QUORUM, AfterQuorum)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(test_outcomes, "after_level", after)
            test_outcomes.test_an_append_is_answered_when_its_weakest_message_has_its_level(level, kind)


LAGS = test_commit.test_a_fact_waits_for_the_other_copy_and_a_message_of_level_disk_does_not_but_nothing_is_readable
PLANTS: list[tuple[str, object, str, Any, Callable[[], None]]] = [
    ("B20", Flusher, "commit", what_this_disk_has_is_read_whatever_is_committed, LAGS),
    ("B20", MessageStore, "mark_durable", what_is_durable_is_applied_at_once, LAGS),
    ("B21", Flusher, "commit", a_copy_that_lags_is_left_out, LAGS),
    ("B21", outcomes, "after_level", a_quorum_is_this_disk, lambda: a_level_outcome(outcomes.after_level)),
    ("B21", outcomes, "after_level", the_disk_is_a_cache, lambda: a_level_outcome(outcomes.after_level)),
]


@pytest.mark.parametrize(("number", "owner", "name", "bug", "killer"), PLANTS, ids=[one[3].__name__ for one in PLANTS])
def test_a_planted_bug_is_caught(
    number: str, owner: object, name: str, bug: Any, killer: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises(AssertionError):
        killer()


def test_each_killer_passes_on_the_sound_broker() -> None:
    for killer in dict.fromkeys(one[-1] for one in PLANTS):
        killer()
