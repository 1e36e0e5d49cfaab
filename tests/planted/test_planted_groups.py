"""Bugs of groups that somebody would write, each planted and caught by the model of their members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker.groups import fold, members
from broker.groups.fold import GroupProgress
from broker.groups.members import Group, Groups, Member
from penstock.client.holdings import Holdings
from penstock.errors import Fenced
from tests.broker.groups import test_fold
from tests.broker.groups.test_members import Model
from tests.penstock.client import test_orderly
from tests.penstock.linked_cluster import LinkedCluster
from tests.penstock.producing import put

SEEDS = range(60)
sound_touch = Groups.touch
sound_go_on = Groups._go_on
sound_progress = fold._progress


def drive(seed: int) -> None:
    """The model's walk, as its test in ``tests/broker/groups/test_members.py`` goes it."""
    model = Model(seed)
    for _ in range(80):
        model.step()
        model.check()
    model.end()


def drive_all() -> None:
    for seed in SEEDS:
        drive(seed)


def two_holders_of_an_ordered_queue_while_the_old_one_works(self: Groups, group: Group, known: Member) -> None:
    for queue in known.held.keys() - set(known.dealt):
        members._release(group, known, queue)


def any_sign_of_life_lets_go(self: Groups, name: str, member: str, generation: int, now: float) -> Group:
    return sound_touch(self, name, member, self.of_member(name, member).generation, now)


def who_held_a_queue_before_the_start_is_forgotten(self: Groups, group: Group, member: str, holding: object) -> None:
    group.awaited_until = 0.0


def a_queue_that_came_back_is_let_go_of_all_the_same(self: Groups, group: Group, known: Member) -> None:
    for queue in known.held.keys() - set(known.dealt):
        known.leaving.setdefault(queue, group.generation)


def a_late_owner_commits(self: Groups, name: str, member: str, generation: int, queues: Sequence[str]) -> None:
    self.of_member(name, member)


PLANTS: list[tuple[str, Callable[..., Any]]] = [
    ("_take_away", two_holders_of_an_ordered_queue_while_the_old_one_works),
    ("touch", any_sign_of_life_lets_go),
    ("_go_on", who_held_a_queue_before_the_start_is_forgotten),
    ("_take_away", a_queue_that_came_back_is_let_go_of_all_the_same),
    ("check_commit", a_late_owner_commits),
]


@pytest.mark.parametrize(("name", "bug"), PLANTS, ids=[bug.__name__ for _, bug in PLANTS])
def test_a_planted_bug_is_caught(name: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Groups, name, bug)
    with pytest.raises((AssertionError, Fenced, pytest.fail.Exception)):
        drive_all()


def test_attempts_that_only_memory_has_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sound_copy = fold._copied

    def forgetful(progress: GroupProgress) -> GroupProgress:
        made = sound_copy(progress)
        made.tried = {}
        return made

    monkeypatch.setattr(fold, "_progress", lambda *row: forgetful(sound_progress(*row)))
    with pytest.raises(AssertionError):
        test_fold.test_messages_that_were_tried_are_known_until_they_are_passed_also_from_a_snapshot()


async def test_a_holder_that_begins_to_count_anew_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LinkedCluster(topics=["orders"])
    for number in range(4):
        put(cluster.brokers[0], b"0", b"1", b"2", queue=number)
    monkeypatch.setattr(Holdings, "attempts_in", lambda self, queue: {})
    with pytest.raises(AssertionError):
        await test_orderly.test_attempts_of_all_holders_are_counted_together(cluster)
