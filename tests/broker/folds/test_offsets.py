from __future__ import annotations

import msgpack

from broker.folds.offsets import Offsets
from penstock.requests.groups import QueueOffset


def test_the_last_commit_of_each_queue_counts() -> None:
    offsets = Offsets()
    offsets.apply(offsets.fact("g", (QueueOffset("t:0", 5), QueueOffset("t:1", 1))), 10)
    offsets.apply(offsets.fact("g", (QueueOffset("t:0", 3),)), 20)
    offsets.apply(offsets.fact("h", (QueueOffset("t:0", 9),)), 30)
    assert (dict(offsets.of("g")), offsets.committed_ms("g")) == ({"t:0": 3, "t:1": 1}, 20)
    assert offsets.groups == ["g", "h"]


def test_a_group_that_never_committed_is_empty() -> None:
    assert (dict(Offsets().of("g")), Offsets().committed_ms("g")) == ({}, 0)


def test_equal_states_have_equal_snapshots_whatever_the_order_of_their_commits() -> None:
    one, other = Offsets(), Offsets()
    one.apply(["g", [["t:0", 1], ["t:1", 2]]], 10)
    one.apply(["h", [["t:0", 1]]], 10)
    other.apply(["h", [["t:0", 1]]], 10)
    other.apply(["g", [["t:1", 2], ["t:0", 1]]], 10)
    assert one.snapshot() == other.snapshot()
    copy = Offsets()
    copy.restore(one.snapshot())
    assert copy.snapshot() == one.snapshot()


def test_what_was_committed_in_a_light_queue_goes_with_it() -> None:
    offsets = Offsets()
    offsets.apply(["g", [["~filter:a/+", 700], ["t:0", 1]]], 10)
    offsets.apply(["h", [["~filter:a/+", 710]]], 10)
    copy = Offsets()
    copy.restore(offsets.snapshot())
    for one in (offsets, copy):
        one.forget("~filter:a/+")
        one.forget("~filter:b")
        assert (dict(one.of("g")), one.groups) == ({"t:0": 1}, ["g"])
    assert offsets.snapshot() == copy.snapshot()


def test_a_group_that_was_given_up_is_forgotten_with_all_that_it_committed() -> None:
    offsets = Offsets()
    offsets.apply(["g", [["~filter:a/+", 700], ["t:0", 1]]], 10)
    offsets.apply(["h", [["~filter:a/+", 710]]], 10)
    frozen = offsets.freeze()
    before = offsets.snapshot()
    for _ in range(2):
        offsets.apply(offsets.fact("g", ()), 20)
    assert (offsets.groups, dict(offsets.of("g"))) == (["h"], {})
    offsets.apply(["g", [["t:0", 2]]], 30)
    offsets.forget("~filter:a/+")
    assert offsets.snapshot() == [["g", 30, [["t:0", 2]]]]
    assert msgpack.unpackb(b"".join(frozen)) == before
