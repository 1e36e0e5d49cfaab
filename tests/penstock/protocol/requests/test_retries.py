"""Messages that are given back, as the first consumers did."""

from __future__ import annotations

from penstock.protocol.requests import retries
from penstock.protocol.requests.retries import Back, SendAllBack, SendBack, SentAllBack, SentBack, WentBack
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    assert codes(retries) == {160: "SendBack", 161: "SendAllBack", 162: "SendLetterAgain"}


def test_a_message_comes_again_by_the_table_unless_asked() -> None:
    assert asked(160, "g", "m", 3, "t:0", 7) == SendBack("g", "m", 3, "t:0", 7, -1, 16, "")
    assert answered(SendBack, 2, 1_000) == SentBack(2, 1_000)


def test_several_are_given_back_in_rows() -> None:
    rows = (Back("t:0", 7, -1, "no"), Back("t:1", 8, 5, ""))
    assert asked(161, "g", "m", 3, [list(one) for one in rows]) == SendAllBack("g", "m", 3, rows, 16)
    assert answered(SendAllBack, [[2, 1_000, 0, ""]]) == SentAllBack((WentBack(2, 1_000, 0, ""),))
