"""What became of a message, as a value."""

from __future__ import annotations

from penstock.client.outcomes import Outcome, Status, outcome_of, outcomes_of
from penstock.client.sending import Receipt
from penstock.client.ways import DelayedReceipt
from penstock.errors import Busy, SendManyError, TimedOut
from penstock.protocol.received import MessageQueue


def test_an_outcome_says_whether_a_message_is_stored_and_the_level_that_it_reached() -> None:
    receipt = Receipt("id", MessageQueue("a", "t", 0), 5, "cache")
    delayed = DelayedReceipt("id", "a", 7, 9000, "t")
    busy, late = Busy("full"), TimedOut("late")
    outcomes = [outcome_of(one) for one in (receipt, delayed, busy, late)]
    assert outcomes == [
        Outcome(Status.STORED, receipt),
        Outcome(Status.STORED, delayed),
        Outcome(Status.NOT_STORED, None, busy),
        Outcome(Status.UNKNOWN, None, late),
    ]
    assert [(one.status, one.level) for one in outcomes] == [
        ("stored", "cache"),
        ("stored", "disk"),
        ("not stored", ""),
        ("unknown", ""),
    ]
    assert outcomes_of(SendManyError("", (receipt, None), {1: late})) == [outcomes[0], outcomes[3]]
