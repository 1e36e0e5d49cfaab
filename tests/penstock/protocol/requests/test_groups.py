"""Consumer groups, as the first members spoke."""

from __future__ import annotations

from penstock.protocol.requests import groups
from penstock.protocol.requests.groups import (
    Assignment,
    CommitOffsets,
    DescribeGroup,
    GroupDetail,
    GroupLag,
    HeldOffsets,
    HoldOffsets,
    JoinGroup,
    MemberInfo,
    Progress,
    QueueOffset,
)
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    assert codes(groups) == {
        70: "JoinGroup",
        71: "WatchGroup",
        72: "LeaveGroup",
        73: "CommitOffsets",
        74: "FetchOffsets",
        75: "ListGroups",
        76: "DescribeGroup",
        77: "HoldOffsets",
        78: "DeleteGroup",
        79: "NoteAttempts",
    }


def test_a_member_lives_thirty_seconds_after_its_last_word_unless_asked() -> None:
    assert asked(70, "g", "m", ["t"]) == JoinGroup("g", "m", ("t",), session_s=30.0)


def test_queues_come_with_the_offset_to_start_from() -> None:
    assert answered(JoinGroup, 3, [["t:0", -1]]) == Assignment(3, (QueueOffset("t:0", -1),))
    assert asked(73, "g", "m", 3, [["t:0", 9]]) == CommitOffsets("g", "m", 3, (QueueOffset("t:0", 9),))


def test_a_group_tells_who_holds_what_and_how_far_it_came() -> None:
    told = answered(DescribeGroup, "g", 3, [["m", ["t:0"]]], [["t:0", 2, 9]])
    assert told == GroupDetail("g", 3, (MemberInfo("m", ("t:0",)),), (GroupLag("t:0", 2, 9),))


def test_a_gateway_holds_a_position_and_is_told_where_it_is() -> None:
    assert asked(77, "g", "m", 15.0, [["t:0", 9, 1]]) == HoldOffsets("g", "m", 15.0, (Progress("t:0", 9, 1),))
    assert answered(HoldOffsets, [["t:0", 9, 1]]) == HeldOffsets((Progress("t:0", 9, 1),))


def test_a_group_tells_which_gateways_hold_its_position() -> None:
    told = answered(DescribeGroup, "g", 3, [], [["t:0", 2, 9]], ["gw/1"])
    assert told == GroupDetail("g", 3, (), (GroupLag("t:0", 2, 9),), ("gw/1",))
