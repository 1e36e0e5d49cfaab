"""Turns of addresses, and who is turned away from a full room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.login.waiting_room import WaitingRoom


def filled(most: int, *arrivals: str) -> tuple[WaitingRoom[str], list[str]]:
    """A room after these have come, named by their address and a number, and who had no room."""
    room: WaitingRoom[str] = WaitingRoom(most)
    refused = [room.add(one[0], one) for one in arrivals]
    return room, [one for one in refused if one is not None]


def served(room: WaitingRoom[str]) -> list[str]:
    taken = []
    while (one := room.take()) is not None:
        taken.append(one)
    return taken


def test_one_address_is_served_in_its_order() -> None:
    room, refused = filled(3, "a1", "a2", "a3", "a4")
    assert (served(room), refused, len(room)) == (["a1", "a2", "a3"], ["a4"], 0)


def test_addresses_have_turns() -> None:
    room, _ = filled(9, "a1", "a2", "a3", "b1", "c1", "b2")
    assert served(room) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_full_room_turns_away_the_last_of_whoever_has_most() -> None:
    room, refused = filled(4, "a1", "a2", "a3", "a4", "b1", "a5", "b2", "c1")
    assert refused == ["a4", "a5", "a3", "a2"]
    assert len(room) == 4
    assert served(room) == ["a1", "b1", "c1", "b2"]


def test_where_all_have_one_the_newcomer_is_turned_away() -> None:
    room, refused = filled(2, "a1", "b1", "c1")
    assert (served(room), refused) == (["a1", "b1"], ["c1"])


def test_where_nobody_may_wait_everybody_is_turned_away() -> None:
    assert filled(0, "a1", "b1")[1] == ["a1", "b1"]


@given(st.lists(st.sampled_from("abc")), st.integers(1, 8))
def test_everybody_is_served_or_turned_away_once(addresses: list[str], most: int) -> None:
    arrivals = [f"{address}{number}" for number, address in enumerate(addresses)]
    room, refused = filled(most, *arrivals)
    assert len(room) == min(most, len(arrivals))
    assert sorted([*served(room), *refused]) == sorted(arrivals)
