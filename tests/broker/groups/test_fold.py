from __future__ import annotations

import msgpack

from broker.groups.fold import Offsets
from broker.store.records import Change
from broker.topics.fold import TopicGone
from penstock.protocol.requests.groups import QueueOffset, Tried
from tests.broker.facts import take


def test_the_last_commit_of_each_queue_counts() -> None:
    offsets = Offsets()
    take(offsets, offsets.fact("g", (QueueOffset("t:0", 5), QueueOffset("t:1", 1))), stored_ms=10)
    take(offsets, offsets.fact("g", (QueueOffset("t:0", 3),)), stored_ms=20)
    take(offsets, offsets.fact("h", (QueueOffset("t:0", 9),)), stored_ms=30)
    assert (dict(offsets.of("g")), offsets.committed_ms("g")) == ({"t:0": 3, "t:1": 1}, 20)
    assert offsets.groups == ["g", "h"]


def test_a_group_that_never_committed_is_empty() -> None:
    assert (dict(Offsets().of("g")), Offsets().committed_ms("g")) == ({}, 0)


def test_equal_states_have_equal_snapshots_whatever_the_order_of_their_commits() -> None:
    one, other = Offsets(), Offsets()
    take(one, ["g", [["t:0", 1], ["t:1", 2]]], stored_ms=10)
    take(one, ["h", [["t:0", 1]]], stored_ms=10)
    take(other, ["h", [["t:0", 1]]], stored_ms=10)
    take(other, ["g", [["t:1", 2], ["t:0", 1]]], stored_ms=10)
    assert one.snapshot() == other.snapshot()
    copy = Offsets()
    copy.restore(one.snapshot())
    assert copy.snapshot() == one.snapshot()


def test_what_was_committed_in_a_light_queue_goes_with_it() -> None:
    offsets = Offsets()
    take(offsets, ["g", [["~filter:a/+", 700], ["t:0", 1]]], stored_ms=10)
    take(offsets, ["h", [["~filter:a/+", 710]]], stored_ms=10)
    copy = Offsets()
    copy.restore(offsets.snapshot())
    for one in (offsets, copy):
        one.follow(Change(ended=["~filter:a/+"]))
        one.follow(Change(ended=["~filter:b"]))
        assert (dict(one.of("g")), one.groups) == ({"t:0": 1}, ["g"])
    assert offsets.snapshot() == copy.snapshot()


def test_a_group_that_was_given_up_is_forgotten_with_all_that_it_committed() -> None:
    offsets = Offsets()
    take(offsets, ["g", [["~filter:a/+", 700], ["t:0", 1]]], stored_ms=10)
    take(offsets, ["h", [["~filter:a/+", 710]]], stored_ms=10)
    frozen = offsets.freeze()
    before = offsets.snapshot()
    for _ in range(2):
        take(offsets, offsets.fact("g", ()), stored_ms=20)
    assert (offsets.groups, dict(offsets.of("g"))) == (["h"], {})
    take(offsets, ["g", [["t:0", 2]]], stored_ms=30)
    offsets.follow(Change(ended=["~filter:a/+"]))
    assert offsets.snapshot() == [["g", 30, [["t:0", 2]]]]
    assert msgpack.unpackb(b"".join(frozen)) == before


def test_who_holds_a_position_is_known_until_it_is_said_anew() -> None:
    offsets = Offsets()
    take(offsets, offsets.fact("g", (QueueOffset("t:0", 5),), ("a", "b")), stored_ms=10)
    take(offsets, offsets.fact("g", (QueueOffset("t:0", 6),)), stored_ms=20)
    take(offsets, offsets.fact("h", (QueueOffset("t:0", 6),)), stored_ms=20)
    assert list(offsets.held()) == [("g", ("a", "b"))]
    take(offsets, offsets.fact("g", (QueueOffset("t:0", 6),), ()), stored_ms=30)
    assert (offsets.holders("g"), list(offsets.held())) == ((), [])


def test_it_is_counted_how_often_a_position_was_set_back() -> None:
    offsets = Offsets()
    for offset in (5, 3, 3, 7, 0):
        take(offsets, ["g", [["t:0", offset], ["t:1", 1]]], stored_ms=10)
    assert dict(offsets.set_backs("g")) == {"t:0": 2}
    take(offsets, offsets.fact("g", ()), stored_ms=20)
    assert dict(offsets.set_backs("g")) == {}


def test_holders_and_counts_are_in_the_snapshot_and_one_of_earlier_versions_has_none() -> None:
    offsets, copy = Offsets(), Offsets()
    take(offsets, offsets.fact("g", (QueueOffset("t:0", 5),), ("a",)), stored_ms=10)
    frozen = offsets.freeze()
    take(offsets, ["g", [["t:0", 4]]], stored_ms=20)
    assert msgpack.unpackb(b"".join(frozen)) == [["g", 10, [["t:0", 5]], ["a"], []]]
    assert offsets.snapshot() == [["g", 20, [["t:0", 4]], ["a"], [["t:0", 1]]]]
    copy.restore(offsets.snapshot())
    assert copy.snapshot() == offsets.snapshot()
    copy.restore([["g", 10, [["t:0", 5]]]])
    assert (copy.holders("g"), dict(copy.set_backs("g")), dict(copy.of("g"))) == ((), {}, {"t:0": 5})


def test_what_was_committed_in_a_topic_goes_with_it() -> None:
    offsets = Offsets()
    take(offsets, ["g", [["t:0", 3], ["t:1", 4], ["tt:0", 1], ["~filter:t", 9]]], stored_ms=10)
    take(offsets, ["g", [["t:0", 2]]], stored_ms=10)
    take(offsets, ["h", [["t:0", 7]]], stored_ms=10)
    copy = Offsets()
    copy.restore(offsets.snapshot())
    for one in (offsets, copy):
        assert (one.reads("t"), one.reads("tt"), one.reads("~filter")) == (True, True, False)
        one.follow(Change(ended=["t:0", "t:1"], events=[TopicGone("t", ("t:0", "t:1"), 99)]))
        assert (dict(one.of("g")), one.groups, dict(one.set_backs("g"))) == ({"tt:0": 1, "~filter:t": 9}, ["g"], {})
        assert (one.reads("t"), one.reads("tt")) == (False, True)
    assert offsets.snapshot() == copy.snapshot()


def test_a_topic_is_read_as_long_as_a_group_has_an_offset_in_it() -> None:
    offsets = Offsets()
    for group in "gh":
        for offset in (1, 2):
            take(offsets, [group, [["t:0", offset]]], stored_ms=10)
    for group, is_read in (("g", True), ("g", True), ("h", False)):
        take(offsets, [group, []], stored_ms=10)
        assert offsets.reads("t") == is_read


def test_messages_that_were_tried_are_known_until_they_are_passed_also_from_a_snapshot() -> None:
    offsets = Offsets()
    take(offsets, offsets.fact("g", (QueueOffset("t:0", 1), QueueOffset("t:1", 4)), ("gateway",)), stored_ms=10)
    tried = Tried("t:0", 1, 3), Tried("t:0", 2, 1), Tried("t:1", 4, 2)
    take(offsets, offsets.fact("g", (QueueOffset("t:0", 1), QueueOffset("t:1", 4)), None, tried), stored_ms=20)
    frozen = offsets.freeze()
    take(offsets, offsets.fact("g", (QueueOffset("t:0", 1),), None, [Tried("t:0", 1, 4)]), stored_ms=20)
    assert (next(offsets.tried("g")), offsets.holders("g")) == (Tried("t:0", 1, 4), ("gateway",))
    copy = Offsets()
    copy.restore(msgpack.unpackb(b"".join(frozen)))
    assert tuple(copy.tried("g")) == tried
    assert list(offsets.tried("h")) == []
    for one in (offsets, copy):
        take(
            one, one.fact("g", (QueueOffset("t:0", 2), QueueOffset("t:1", 3))), stored_ms=30
        )  # one passed, one set back
        assert list(one.tried("g")) == [Tried("t:0", 2, 1)]
        one.follow(Change(events=[TopicGone("t", ("t:0",), 5)]))
        assert list(one.tried("g")) == []
    assert offsets.snapshot() == copy.snapshot()
