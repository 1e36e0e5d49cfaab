"""Twin of gateway/sessions/lasting.py."""

from __future__ import annotations

from gateway.sessions.lasting import Lasting
from gateway.sessions.session_state import Owed, Place


def test_a_session_has_its_filters_open_in_a_name_that_says_where_it_is_at_home() -> None:
    lasting = Lasting(7, "home")
    assert (lasting.holder("home"), lasting.holder("b")) == ("~session/7", "~session/7@home")
    assert Lasting(7).holder("b") == "~session/7"


def test_what_ended_has_no_place_and_nothing_is_owed_to_it() -> None:
    lasting = Lasting(7)
    place, owed = Place(1, 0, 0, ()), Owed(1, "", None, "t")
    lasting.places = {("a", "b1"): place, ("a", "b2"): place, ("c", "b1"): place}
    lasting.owed = {("a", "b1"): owed, ("c", "b2"): owed}
    lasting.forget("a")
    assert (lasting.places, lasting.owed) == ({("c", "b1"): place}, {("c", "b2"): owed})
