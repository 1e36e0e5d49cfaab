from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.sessions.exchanges import Exchanges, exchange_of
from tests.broker.facts import take


def test_an_id_is_held_from_its_message_to_its_release() -> None:
    exchanges = Exchanges()
    exchanges.stored("c", 7, 1)
    exchanges.stored("c", 7, 2)
    assert (exchanges.ids("c", 7), exchanges.holds("c", 7, 1)) == ([1, 2], True)
    take(exchanges, Exchanges.fact("c", 7, [1]))
    assert (exchanges.ids("c", 7), exchanges.holds("c", 7, 1)) == ([2], False)
    take(exchanges, Exchanges.fact("c", 7, []))
    assert len(exchanges) == 0


def test_a_later_session_of_a_client_does_not_know_the_ids_of_its_earlier_one() -> None:
    exchanges = Exchanges()
    exchanges.stored("c", 7, 1)
    assert exchanges.ids("c", 9) == []
    exchanges.stored("c", 9, 2)
    assert (exchanges.ids("c", 7), exchanges.ids("c", 9)) == ([], [2])
    exchanges.stored("c", 7, 3)  # late
    take(exchanges, Exchanges.fact("c", 7, []))
    assert exchanges.ids("c", 9) == [2]


def test_of_whom_nothing_is_held_nothing_is_known() -> None:
    exchanges = Exchanges()
    assert not exchanges.knows("c", 7)
    exchanges.stored("c", 7, 1)
    assert (exchanges.knows("c", 7), exchanges.knows("c", 9), exchanges.knows("d", 7)) == (True, False, False)


clients, ids = st.sampled_from("ab"), st.integers(1, 3)
steps = st.tuples(st.booleans(), clients, st.integers(1, 2), ids)


def _take(exchanges: Exchanges, step: tuple[bool, str, int, int]) -> None:
    is_stored, client, generation, packet_id = step
    if is_stored:
        exchanges.stored(client, generation, packet_id)
    else:
        take(exchanges, Exchanges.fact(client, generation, [packet_id]))


@given(st.lists(steps, max_size=20), st.lists(steps, max_size=10))
def test_a_restored_snapshot_is_the_replay(
    before: list[tuple[bool, str, int, int]], after: list[tuple[bool, str, int, int]]
) -> None:
    replayed, restored = Exchanges(), Exchanges()
    for step in before:
        _take(replayed, step)
    restored.restore(replayed.snapshot())
    for step in after:
        _take(replayed, step)
        _take(restored, step)
    assert replayed.snapshot() == restored.snapshot()


@pytest.mark.parametrize(
    "value", ["", "7", "7:1", "7:1:", ":1:1", "7:1:0", "7:1:65536", "-7:1:1", "7:1:x", "7:1:2:3", "9" * 20 + ":1:1"]
)
def test_what_names_no_exchange_is_none(value: str) -> None:
    assert exchange_of(value) is None


def test_an_exchange_is_read_back() -> None:
    assert exchange_of("7:9:65535") == (7, 9, 65535)


def test_a_fence_holds_earlier_epochs_off_until_the_session_ends() -> None:
    exchanges = Exchanges()
    take(exchanges, Exchanges.fencing("c", 7, 9))
    assert [exchanges.is_fenced("c", *one) for one in ((7, 8), (7, 9), (7, 10), (6, 20), (8, 8))] == [
        True,
        False,
        False,
        True,
        False,
    ]
    take(exchanges, Exchanges.fencing("c", 7, 5))
    assert exchanges.is_fenced("c", 7, 8)
    restored = Exchanges()
    restored.restore(exchanges.snapshot())
    assert restored.is_fenced("c", 7, 8)
    take(exchanges, Exchanges.fact("c", 7, []))
    assert not exchanges.is_fenced("c", 7, 8)
