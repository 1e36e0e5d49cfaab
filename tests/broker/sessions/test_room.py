"""Room for what is kept of sessions, by the sizes alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.sessions.fold import Sessions
from broker.sessions.room import SessionRoom
from penstock.protocol.requests.sessions import CONNECTED, NO_WILL, SessionSave
from tests.broker.facts import take


def kept(**sizes: int) -> Sessions:
    """Sessions with so many bytes of flow, at epochs 1, 2, 3 and so on."""
    sessions = Sessions()
    for at, (client, size) in enumerate(sizes.items()):
        take(sessions, Sessions.opening("g", client, True, 60, NO_WILL), at, 1)
        take(sessions, Sessions.saving([SessionSave(client, at + 1, CONNECTED, 60, flow=bytes(size))]), 99, 1)
    return sessions


def flow(client: str, size: int) -> SessionSave:
    return SessionSave(client, 1, CONNECTED, 60, flow=bytes(size))


@pytest.mark.parametrize(("will", "is_new", "holds"), [(4, False, True), (5, False, False), (10, True, True)])
def test_a_will_counts_beside_what_stays_of_the_session(will: int, is_new: bool, holds: bool) -> None:
    assert SessionRoom(kept(c=6), 10).holds_opened("c", bytes(will), is_new) is holds


def test_a_session_without_a_will_is_opened_where_there_is_no_room_left() -> None:
    assert SessionRoom(kept(c=6), 6).holds_opened("d", NO_WILL, True)
    assert not SessionRoom(kept(c=6), 6).holds_opened("d", b"w", True)


def test_beyond_the_limit_all_that_does_not_grow_is_kept() -> None:
    room = SessionRoom(kept(c=6, d=6), 5)
    assert [room.holds_saved(flow("c", size)) for size in (7, 6, 5, 6)] == [False, True, True, False]
    assert room.holds_opened("d", bytes(6), True)


def test_what_one_save_gives_back_the_next_one_has() -> None:
    room = SessionRoom(kept(c=6, d=0), 6)
    assert [room.holds_saved(flow("d", 1)), room.holds_saved(flow("c", 5)), room.holds_saved(flow("d", 1))] == [
        False,
        True,
        True,
    ]


saves = st.builds(
    SessionSave,
    st.sampled_from("cd"),
    st.integers(1, 2),
    st.just(CONNECTED),
    st.just(60),
    st.sampled_from([b"", NO_WILL, b"w", b"will"]),
    st.binary(max_size=4),
    st.binary(max_size=4),
)


@given(st.lists(saves, max_size=12), st.integers(0, 20))
def test_what_it_takes_is_never_more_than_the_limit_once_kept(asked: list[SessionSave], bytes_max: int) -> None:
    sessions = kept(c=3, d=3)
    before = sessions.bytes
    room = SessionRoom(sessions, bytes_max)
    taken = [save._replace(epoch="cd".index(save.client) + 1) for save in asked if room.holds_saved(save)]
    take(sessions, Sessions.saving(taken), 100, 1)
    assert sessions.bytes <= max(before, bytes_max)
