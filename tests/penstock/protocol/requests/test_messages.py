"""Appends and pulls, as the first peers said them."""

from __future__ import annotations

from penstock.protocol.requests import messages
from penstock.protocol.requests.messages import Append, Appended, FindByKey, Placed, Pull, Refused
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    assert codes(messages) == {
        40: "Append",
        41: "Pull",
        42: "QueryBounds",
        43: "SeekTime",
        44: "FindByKey",
        45: "AppendRuns",
        46: "ReadAt",
        47: "ListReads",
        48: "TellAcknowledged",
        49: "TellAudited",
    }


def test_an_append_without_detail_is_answered_by_its_level_alone() -> None:
    assert asked(40, 1, False, body=b"x") == Append(1, False, b"x")
    assert answered(Append, "disk") == Appended("disk", placed=(), refused=())


def test_places_and_refusals_are_told_one_by_one() -> None:
    told = answered(Append, "disk", [[0, 7, 4096], [0, 0, 0]], [[1, 40, "no record"]])
    assert told == Appended("disk", (Placed(0, 7, 4096), Placed(0, 0, 0)), (Refused(1, 40, "no record"),))


def test_a_pull_waits_for_nothing_and_takes_every_tag_unless_asked() -> None:
    assert asked(41, "t:0", 9) == Pull("t:0", 9, bytes_max=256 * 1024, count_max=1024, wait_s=0.0, tags=())


def test_a_search_for_a_key_covers_all_time_unless_asked() -> None:
    assert asked(44, "t", "k") == FindByKey("t", "k", since_ms=0, until_ms=1 << 62, count_max=64, before=1 << 62)
