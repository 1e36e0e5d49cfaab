"""The fold of removals: the one that reaches farthest counts, in snapshots too."""

from __future__ import annotations

import msgpack

from broker.lineage.removals import Removals
from broker.store.records import Removed
from tests.broker.facts import take


def test_the_removal_that_reaches_farthest_counts_and_where_it_is_said() -> None:
    removals = Removals()
    for position, before in ((500, 100), (600, 300), (700, 200)):
        take(removals, Removals.fact(before), position)
    assert removals.latest == Removed(300, 600)


def test_a_snapshot_restores_it_and_none_stands_for_a_log_that_says_nothing() -> None:
    removals, again = Removals(), Removals()
    take(removals, Removals.fact(100), 500)
    again.restore(msgpack.unpackb(b"".join(removals.freeze())))
    assert again.latest == Removed(100, 500)
    again.restore(None)
    assert again.latest == Removed()
