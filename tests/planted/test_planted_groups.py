"""Bugs of groups that somebody would write, each planted and caught by the model of their members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker.groups import members
from broker.groups.members import Group, Groups, Member
from penstock.errors import Fenced
from tests.broker.groups.test_members import Model

SEEDS = range(60)
sound_touch = Groups.touch
sound_go_on = Groups._go_on


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
