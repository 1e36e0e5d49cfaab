"""Leases of ranges against a model that keeps a row for each message."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.shares.pop_leases import Owed, PopLeases


class Model:
    """Each message by itself: who has it until when, or how often it was given out before."""

    def __init__(self) -> None:
        self.leased: dict[int, tuple[str, float, int]] = {}
        self.owed: dict[int, int] = {}

    def settle(self, first: int, end: int) -> None:
        for offset in range(first, end):
            self.leased.pop(offset, None)
            self.owed.pop(offset, None)

    def mine(self, taker: str, first: int, end: int) -> list[int]:
        return [offset for offset in range(first, end) if self.leased.get(offset, ("",))[0] == taker]

    def expire(self, now: float) -> None:
        for offset, (_taker, deadline, deliveries) in list(self.leased.items()):
            if deadline <= now:
                del self.leased[offset]
                self.owed[offset] = deliveries + 1


def state_of(leases: PopLeases) -> tuple[Any, Any]:
    leased = {
        offset: (one.taker, one.deadline, one.deliveries)
        for one in leases._leases
        for offset in range(one.first, one.end)
    }
    return leased, {offset: one.deliveries for one in leases._owed for offset in range(one.first, one.end)}


@pytest.mark.parametrize("seed", range(60))
def test_ranges_say_what_a_row_for_each_message_would(seed: int) -> None:
    rng = random.Random(seed)
    leases, model, now = PopLeases(5), Model(), 0.0
    for _ in range(rng.randint(1, 200)):
        now += rng.choice([0, 0, 0.3, 2])
        first = rng.randint(0, leases.next + 3)
        end, taker = first + rng.randint(1, 12), rng.choice("ab")
        action = rng.choice(["new", "new", "again", "settle", "settle", "extend", "give_back", "expire"])
        if action == "new":
            first, end = leases.next, leases.next + rng.randint(1, 20)
            leases.lease(first, end, taker, now + 1)
            model.leased |= dict.fromkeys(range(first, end), (taker, now + 1, 0))
        elif action == "again" and (owed := leases.first_owed()) is not None:
            assert owed.first == min(model.owed)
            end = rng.randint(owed.first + 1, owed.end)
            leases.take_owed(owed, end)
            leases.lease(owed.first, end, taker, now + 1, owed.deliveries)
            for offset in range(owed.first, end):
                model.leased[offset] = (taker, now + 1, model.owed.pop(offset))
        elif action == "settle":
            leases.settle(first, end)
            model.settle(first, end)
        elif action == "extend":
            mine = model.mine(taker, first, end)
            assert leases.extend(taker, first, end, now + 5) == len(mine)
            model.leased |= {offset: (taker, now + 5, model.leased[offset][2]) for offset in mine}
        elif action == "give_back":
            mine = model.mine(taker, first, end)
            assert leases.give_back(taker, first, end) == len(mine)
            model.owed |= {offset: model.leased.pop(offset)[2] for offset in mine}
        elif action == "expire":
            leases.expire(now)
            model.expire(now)
        assert state_of(leases) == (model.leased, model.owed)
        assert (leases.leased, leases.owed) == (len(model.leased), len(model.owed))
        assert leases._firsts == sorted(one.first for one in leases._leases)
        some = rng.randint(0, leases.next)
        lease = leases.of(some)
        assert (lease.taker if lease is not None else None) == model.leased.get(some, (None,))[0]
    assert len(leases._deadlines) <= 65 + 4 * len(leases._leases)


def test_a_settled_message_is_never_owed_again() -> None:
    leases = PopLeases(0)
    leases.lease(0, 10, "a", 1.0)
    leases.settle(2, 5)
    assert leases.expire(1.0)
    assert [leases._owed[at] for at in range(2)] == [Owed(0, 2, 1), Owed(5, 10, 1)]
    leases.settle(0, 10)
    assert (leases.first_owed(), leases.expire(99.0), leases.deadline) == (None, False, None)
