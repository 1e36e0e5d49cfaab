"""Bugs of those who follow a leader, numbered as in issue 46, each planted and caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from namesrv.registry import Registry
from tests.namesrv import test_registry as names


def give_the_name_to_a_lower_epoch(self: Registry, *_: Any) -> None:
    pass


def forget_the_epoch_with_the_lease(self: Registry, name: str, log_id: str) -> int:
    return 0


def case(test: Callable[[], None]) -> Callable[[], None]:
    def killer() -> None:
        with pytest.raises(AssertionError):
            test()

    return killer


HIGHEST = case(names.test_the_leader_of_a_higher_epoch_takes_the_name_at_once_and_none_of_a_lower_one_gets_it_back)
PLANTS: list[tuple[str, Any, str, Any, Callable[[], None]]] = [
    ("R19", Registry, "_check_name_is_free", give_the_name_to_a_lower_epoch, HIGHEST),
    ("R19", Registry, "_epoch_of", forget_the_epoch_with_the_lease, HIGHEST),
]


@pytest.mark.parametrize(("number", "owner", "name", "bug", "killer"), PLANTS, ids=[one[3].__name__ for one in PLANTS])
def test_a_planted_bug_is_caught(
    number: str, owner: Any, name: str, bug: Any, killer: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    killer()
