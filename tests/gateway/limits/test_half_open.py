"""Half-open connections: the address that has most gives way, and only to one that has fewer."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.half_open import HalfOpens


class Silent:
    """A connection that says nothing."""

    def __init__(self, room: HalfOpens, address: str) -> None:
        self.room, self.address, self.is_open = room, address, True
        room.enter(address, self)

    def drop(self, why: str = "") -> None:
        assert why
        self.leave()

    def leave(self) -> None:
        self.is_open = False
        self.room.leave(self.address, self)


def test_the_newest_of_the_address_that_has_most_gives_way() -> None:
    room = HalfOpens()
    greedy = [Silent(room, "10.0.0.1") for _ in range(4)]
    modest = Silent(room, "10.0.0.2")
    assert room.make_room("10.0.0.2")
    assert [one.is_open for one in greedy] == [True, True, True, False]
    assert (modest.is_open, len(room)) == (True, 4)
    assert not room.make_room("10.0.0.1"), "whoever has most waits for itself"


def test_an_address_that_has_one_more_gives_nothing_up() -> None:
    room = HalfOpens()
    for address in ("a", "a", "b"):
        Silent(room, address)
    assert not room.make_room("b")
    assert room.make_room("c")
    assert not HalfOpens().make_room("c")


def test_a_network_of_ipv6_is_one_address() -> None:
    room = HalfOpens()
    for number in range(4):
        Silent(room, f"2001:db8::{number + 1}")
    assert not room.make_room("2001:db8::99")
    assert room.make_room("2001:db8:1::99")


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=80), st.integers(1, 12))
def test_however_they_come_and_go_no_address_has_more_than_its_share_while_another_is_refused(
    steps: list[tuple[str, bool]], most: int
) -> None:
    room, here = HalfOpens(), list[Silent]()
    for address, comes in steps:
        here = [one for one in here if one.is_open]
        counts = Counter(one.address for one in here)
        assert len(room) == len(here)
        mine = [one for one in here if one.address == address]
        if not comes:
            if mine:
                mine[0].leave()
        elif len(room) < most or room.make_room(address):
            here.append(Silent(room, address))
            assert len(room) <= most
        else:
            assert max(counts.values()) <= counts[address] + 1
