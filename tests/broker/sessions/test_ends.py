"""How long sessions have been without their clients, by a clock of the test's."""

from __future__ import annotations

from broker.sessions.ends import SessionEnds
from broker.sessions.fold import Sessions
from penstock.protocol.requests.sessions import NEVER_ENDS, NO_WILL, RELEASED, SessionSave
from tests.broker.facts import take


def kept(gone_ms: int, **expiries_s: int) -> Sessions:
    """Sessions with these expiries whose clients went at this time by the wall clock, 0: they are there."""
    sessions = Sessions()
    for at, (client, expiry_s) in enumerate(expiries_s.items()):
        take(sessions, Sessions.opening("g", client, True, expiry_s, NO_WILL), at, 1)
        if gone_ms:
            take(sessions, Sessions.saving([SessionSave(client, at + 1, RELEASED, expiry_s)]), 99, gone_ms)
    return sessions


def test_a_stored_absence_goes_on_by_the_monotonic_clock() -> None:
    ends = SessionEnds(kept(7_000, c=60), 500.0, 10_000)
    assert (ends.absence_s("c", 500.0), ends.absence_s("c", 520.0)) == (3, 23)
    assert ends.absent_since_ms("c", 520.0, 1_000_000) == 977_000
    assert (ends.is_over("c", 556.9), ends.is_over("c", 557.0)) == (False, True)
    assert (list(ends.due(556.9)), list(ends.due(557.0)), list(ends.due(600.0))) == ([], ["c"], [])


def test_an_absence_that_begins_later_by_the_wall_clock_begins_now() -> None:
    ends = SessionEnds(kept(7_000, c=60), 500.0, 1_000)
    assert (ends.absence_s("c", 500.0), ends.is_over("c", 559.0), ends.is_over("c", 560.0)) == (0, False, True)


def test_a_client_has_been_gone_since_it_was_first_said_and_not_at_all_when_it_is_back() -> None:
    ends = SessionEnds(kept(0, c=60), 0.0, 1)
    assert (ends.absence_s("c", 9.0), ends.is_over("c", 1e9)) == (0, False)
    ends.went("c", 10.0)
    ends.went("c", 20.0)
    ends.watch("c")
    assert (ends.absence_s("c", 30.0), ends.is_over("c", 70.0)) == (20, True)
    ends.back("c")
    assert (ends.absence_s("c", 30.0), ends.is_over("c", 70.0)) == (0, False)
    assert list(ends.due(70.0)) == []


def test_a_session_that_never_ends_is_not_over_and_waits_nowhere() -> None:
    ends = SessionEnds(kept(1, c=NEVER_ENDS), 0.0, 10_000)
    ends.watch("c")
    assert (ends.is_over("c", 1e12), len(ends), list(ends.due(1e12))) == (False, 0, [])


def test_what_is_due_and_could_not_be_seen_to_is_told_again() -> None:
    ends = SessionEnds(kept(1, c=1, d=2), 10.0, 10_000)
    for _ in range(2):
        for client in ends.due(20.0):
            assert client == "c"
            break
    assert list(ends.due(20.0)) == ["c", "d"]
