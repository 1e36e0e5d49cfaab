from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.filters.fold import OwnerEnded
from broker.sessions.fold import SessionEnded, Sessions, holder
from broker.store.records import NO_CHANGE, Change
from penstock.protocol.requests.sessions import CONNECTED, GONE, LOST, NO_WILL, RELEASED, SessionSave
from tests.broker.facts import take


def opened(sessions: Sessions, position: int, owner: str = "g", *, is_new: bool = True, expiry_s: int = 60) -> Any:
    return take(sessions, Sessions.opening(owner, "c", is_new, expiry_s, b"will"), position, 5)


def ended(generation: int) -> Change:
    return Change(events=(SessionEnded("c", generation), OwnerEnded(holder(generation))))


def test_every_opening_gives_a_higher_epoch_and_only_a_new_session_a_new_generation() -> None:
    sessions = Sessions()
    assert opened(sessions, 100) == NO_CHANGE
    assert opened(sessions, 200, "h", is_new=False) == NO_CHANGE
    entry = sessions.get("c")
    assert entry is not None
    assert (entry.owner, entry.epoch, entry.generation, sessions.of("g"), sessions.of("h")) == (
        "h",
        201,
        101,
        [],
        ["c"],
    )
    assert opened(sessions, 300) == ended(101), "a new session tells what it ended"
    assert take(sessions, Sessions.ending("c", 201), 400, 5) == NO_CHANGE, "a late word"
    assert take(sessions, Sessions.ending("c", 301), 400, 5) == ended(301)
    assert (len(sessions), sessions.owners) == (0, [])


def test_a_save_of_an_earlier_epoch_changes_nothing() -> None:
    sessions = Sessions()
    opened(sessions, 100)
    opened(sessions, 200, is_new=False)
    take(sessions, Sessions.saving([SessionSave("c", 101, RELEASED, 0, b"x", b"x", b"x")]), 300, 5)
    entry = sessions.get("c")
    assert entry is not None
    assert (entry.state, entry.will, entry.terms, entry.flow, entry.owner) == (CONNECTED, b"will", b"", b"", "g")


def test_what_a_save_leaves_empty_stays_and_its_time_counts_from_the_end_of_the_connection() -> None:
    sessions = Sessions()
    opened(sessions, 0)
    take(sessions, Sessions.saving([SessionSave("c", 1, CONNECTED, 60, terms=b"t", flow=b"1")]), 10, 1000)
    take(sessions, Sessions.saving([SessionSave("c", 1, GONE, 60, flow=b"2")]), 20, 2000)
    take(sessions, Sessions.saving([SessionSave("c", 1, RELEASED, 60)]), 30, 9000)
    entry = sessions.get("c")
    assert entry is not None
    assert (entry.will, entry.terms, entry.flow, entry.gone_ms, entry.owner) == (b"will", b"t", b"2", 2000, "")
    assert sessions.gone() == [("c", 2000)]


def doubtful_ms(sessions: Sessions) -> int:
    entry = sessions.get("c")
    assert entry is not None
    return entry.doubtful_ms


def test_what_an_owner_may_have_done_is_in_doubt_when_it_goes_without_a_word() -> None:
    sessions = Sessions()
    opened(sessions, 0)
    take(sessions, Sessions.saving([SessionSave("c", 1, RELEASED, 60)]), 10, 1000)
    take(sessions, Sessions.opening("h", "c", False, 60, b""), 20, 2000)
    assert doubtful_ms(sessions) == 0, "its owner let it go"
    take(sessions, Sessions.opening("i", "c", False, 60, b""), 30, 3000)
    assert doubtful_ms(sessions) == 3000, "its owner was passed over"
    take(sessions, Sessions.saving([SessionSave("c", 31, LOST, 60)]), 40, 4000)
    entry = sessions.get("c")
    assert entry is not None
    assert (entry.state, entry.owner, entry.gone_ms, entry.doubtful_ms) == (RELEASED, "", 4000, 4000)
    take(sessions, Sessions.opening("j", "c", False, 60, b""), 50, 5000)
    take(sessions, Sessions.saving([SessionSave("c", 51, RELEASED, 60)]), 60, 6000)
    assert doubtful_ms(sessions) == 4000, "what was in doubt before is so for ever"
    take(sessions, Sessions.opening("j", "c", True, 60, b""), 70, 7000)
    assert doubtful_ms(sessions) == 0, "a new session has been sent nothing"


def test_a_snapshot_from_before_there_was_doubt_has_none() -> None:
    sessions = Sessions()
    opened(sessions, 0)
    opened(sessions, 10, is_new=False)
    assert doubtful_ms(sessions) == 5
    again = Sessions()
    again.restore([row[:-1] for row in sessions.snapshot()])
    assert doubtful_ms(again) == 0
    entry = again.get("c")
    assert entry is not None
    assert (entry.owner, entry.epoch, entry.generation, entry.will) == ("g", 11, 1, b"will")


def test_who_takes_a_session_for_its_will_leaves_its_client_gone_and_a_client_that_is_back_does_not() -> None:
    for is_new in (False, True):
        sessions = Sessions()
        opened(sessions, 0)
        assert sessions.gone() == []
        take(sessions, Sessions.opening("h", "c", is_new, 60, b"will", gone_ms=700), 10, 1000)
        assert sessions.gone() == [("c", 700)]
        take(sessions, Sessions.saving([SessionSave("c", 11, GONE, 60)]), 20, 2000)
        assert sessions.gone() == [("c", 700)]
        opened(sessions, 30, is_new=False)
        assert sessions.gone() == []


def test_an_opening_of_an_earlier_version_is_for_the_client() -> None:
    sessions = Sessions()
    assert take(sessions, Sessions.opening("g", "c", True, 60, b"will", gone_ms=7)[:-1], 0, 1000) == NO_CHANGE
    assert sessions.gone() == []


def test_holders_differ_by_generation_and_have_no_lease() -> None:
    assert holder(1) != holder(2)
    assert holder(1).startswith("~")


clients, owners = st.sampled_from("cd"), st.sampled_from("gh")
parts, wills = st.binary(max_size=3), st.sampled_from([b"", NO_WILL, b"w", b"will"])
saves = st.builds(
    SessionSave,
    clients,
    st.integers(1, 30),
    st.sampled_from([CONNECTED, GONE, RELEASED, LOST]),
    st.integers(0, 9),
    wills,
    parts,
    parts,
)
bodies = st.one_of(
    st.builds(Sessions.opening, owners, clients, st.booleans(), st.integers(0, 9), wills),
    st.lists(saves, min_size=1, max_size=3).map(Sessions.saving),
    st.builds(Sessions.ending, clients, st.integers(1, 30)),
)


@given(st.lists(bodies, max_size=20), st.lists(bodies, max_size=10))
def test_a_restored_snapshot_is_the_replay(before: list[list[Any]], after: list[list[Any]]) -> None:
    replayed, restored = Sessions(), Sessions()
    for at, body in enumerate(before):
        take(replayed, body, at, at)
    restored.restore(replayed.snapshot())
    for at, body in enumerate(after, len(before)):
        assert take(replayed, body, at, at) == take(restored, body, at, at)
    assert replayed.snapshot() == restored.snapshot()
    assert [sorted(replayed.of(one)) for one in "gh"] == [sorted(restored.of(one)) for one in "gh"]


def recount(sessions: Sessions) -> int:
    entries = [entry for entry in map(sessions.get, "cd") if entry is not None]
    wills = [entry.will for entry in entries if entry.will != NO_WILL]
    return sum(map(len, [*wills, *[entry.terms for entry in entries], *[entry.flow for entry in entries]]))


@given(st.lists(bodies, max_size=30), st.integers(0, 30))
def test_the_bytes_of_all_sessions_are_what_a_recount_gives_whatever_has_changed(
    facts: list[list[Any]], frozen_at: int
) -> None:
    sessions, restored = Sessions(), Sessions()
    for at, body in enumerate(facts):
        if at == frozen_at:
            sessions.freeze()
        take(sessions, body, at, at)
        assert sessions.bytes == recount(sessions)
        restored.restore(sessions.snapshot())
        assert restored.bytes == sessions.bytes


def test_a_will_counts_and_that_there_is_none_does_not() -> None:
    sessions = Sessions()
    opened(sessions, 0)
    take(sessions, Sessions.saving([SessionSave("c", 1, CONNECTED, 60, terms=b"123", flow=b"12")]), 10, 1000)
    assert sessions.bytes == len(b"will") + 3 + 2
    take(sessions, Sessions.saving([SessionSave("c", 1, RELEASED, 60, NO_WILL)]), 20, 2000)
    assert sessions.bytes == 3 + 2
    take(sessions, Sessions.ending("c", 1), 30, 3000)
    assert sessions.bytes == 0


def test_a_will_that_is_said_again_is_in_memory_once_also_while_a_snapshot_has_it() -> None:
    sessions = Sessions()
    take(sessions, Sessions.opening("g", "c", True, 60, bytes(1000)), 0, 5)
    before = sessions.get("c")
    frozen = sessions.freeze()
    take(sessions, Sessions.opening("h", "c", False, 60, bytes(1000)), 10, 6)
    after = sessions.get("c")
    assert before is not None
    assert after is not None
    assert (before.owner, after.owner, after.will is before.will) == ("g", "h", True)
    assert b"".join(frozen)


def test_a_save_that_says_what_is_known_changes_nothing() -> None:
    sessions = Sessions()
    take(sessions, Sessions.opening("g", "c", True, 60, b"will"), 9, 1)
    known = SessionSave("c", 10, CONNECTED, 60)
    before = sessions.snapshot()
    take(sessions, Sessions.saving([known]), 20, 2)
    assert (sessions.is_as(known), sessions.snapshot()) == (True, before)
    others = [SessionSave("d", 10, CONNECTED, 60), known._replace(state=GONE), known._replace(expiry_s=50)]
    others += [known._replace(**{part: b"x"}) for part in ("will", "terms", "flow")]
    assert not any(map(sessions.is_as, others))
