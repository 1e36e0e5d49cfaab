"""Messages that are given back, as the first consumers did."""

from __future__ import annotations

from penstock.protocol.requests import retries
from penstock.protocol.requests.retries import SendBack, SentBack
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    assert codes(retries) == {160: "SendBack"}


def test_a_message_comes_again_by_the_table_unless_asked() -> None:
    assert asked(160, "g", "m", 3, "t:0", 7) == SendBack("g", "m", 3, "t:0", 7, -1, 16, "")
    assert answered(SendBack, 2, 1_000) == SentBack(2, 1_000)
