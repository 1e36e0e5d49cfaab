from __future__ import annotations

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from broker.store.records import Stored
from broker.transactions.fold import OUTCOMES_MAX, Half, Halves
from penstock.protocol.message import FLAG_WOKEN
from tests.broker.facts import fact, take


def begin(halves: Halves, id: int, group: str = "g") -> Half:
    stored = fact(halves.TOPICS[0], Halves.begin(group, b"r"), id, 7)
    halves.apply(stored)
    return Half(group, id, stored.size, 7)


def commit(halves: Halves, id: int) -> None:
    """The message of the half is stored."""
    halves.apply(Stored(0, 0, "t", 0, FLAG_WOKEN, f"P\x01v\x02HALF\x01{id}".encode(), 0, b""))


def state(halves: Halves) -> bytes:
    return b"".join(halves.freeze())


def test_a_half_ends_by_its_message_or_by_a_rollback_and_the_first_outcome_stands() -> None:
    halves = Halves()
    for id in (1, 2):
        begin(halves, id)
    commit(halves, 1)
    take(halves, Halves.rollback(2))
    take(halves, Halves.rollback(1))
    commit(halves, 2)
    assert [halves.outcome(id) for id in (1, 2, 3)] == ["commit", "rollback", ""]
    assert (len(halves), halves.bytes) == (0, 0)


def test_rounds_and_checks_are_counted_apart_and_begin_anew_when_a_half_is_reopened() -> None:
    halves = Halves()
    half = begin(halves, 1)
    take(halves, Halves.round(1, is_asked=True))
    take(halves, Halves.round(1, is_asked=False))
    take(halves, Halves.set_aside(1, "why"))
    assert halves.get(1) == half._replace(rounds=2, checks=1, parked="why")
    take(halves, Halves.reopen(1))
    assert halves.get(1) == half


def test_a_carried_half_keeps_its_id_and_one_that_ended_is_not_carried_back() -> None:
    halves = Halves()
    begin(halves, 10)
    assert [id for id, _ in halves.before(50, 9)] == [10]
    take(halves, Halves.carry(10, b"r"), position=100)
    assert halves.before(50, 9) == []
    assert [(id, half.position) for id, half in halves.after(0, 9)] == [(10, 100)]
    commit(halves, 10)
    take(halves, Halves.carry(10, b"r"), position=200)
    assert len(halves) == 0


def test_only_the_latest_outcomes_are_remembered() -> None:
    halves = Halves()
    for id in range(1, OUTCOMES_MAX + 2):
        begin(halves, id)
        take(halves, Halves.rollback(id))
    assert [halves.outcome(id) for id in (1, 2, OUTCOMES_MAX + 1)] == ["", "rollback", "rollback"]


@given(
    st.lists(st.tuples(st.sampled_from(["begin", "commit", "rollback", "round", "park", "restart"]), st.integers(0, 9)))
)
def test_any_mix_of_facts_gives_the_state_of_the_model_live_and_restored(steps: list[tuple[str, int]]) -> None:
    halves, model, ended = Halves(), dict[int, Half](), dict[int, str]()
    for position, (what, number) in enumerate(steps, start=1):
        ids = sorted({*model, *ended})
        id = ids[number % len(ids)] if ids else 0
        if what == "begin":
            model[position] = begin(halves, position)
        elif what == "restart":
            snapshot = state(halves)
            halves = Halves()
            halves.restore(msgpack.unpackb(snapshot))
            assert state(halves) == snapshot
        elif what == "commit":
            commit(halves, id)
            if model.pop(id, None):
                ended[id] = "commit"
        elif what == "rollback":
            take(halves, Halves.rollback(id))
            if model.pop(id, None):
                ended[id] = "rollback"
        elif what == "round":
            take(halves, Halves.round(id, is_asked=bool(number % 2)))
            if id in model:
                old = model[id]
                model[id] = old._replace(rounds=old.rounds + 1, checks=old.checks + number % 2)
        else:
            take(halves, Halves.set_aside(id, "why"))
            if id in model:
                model[id] = model[id]._replace(parked="why")
        assert dict(halves.items()) == model
        assert {id: halves.outcome(id) for id in ended} == ended
        assert halves.bytes == sum(half.size for half in model.values())


def test_a_half_of_several_messages_ends_with_the_last_one_and_a_snapshot_knows_how_many_there_are() -> None:
    halves = Halves()
    halves.apply(fact(halves.TOPICS[0], Halves.begin("g", b"runs", 3), 1, 7))
    commit(halves, 1)
    commit(halves, 1)
    copy = Halves()
    copy.restore(msgpack.unpackb(state(halves)))
    assert state(copy) == state(halves)
    for one in (halves, copy):
        assert (one.unfinished(), one.woken(1), one.outcome(1), len(one)) == ([1], 2, "commit", 1)
        commit(one, 1)
        commit(one, 1)
        assert (one.unfinished(), one.woken(1), one.outcome(1), len(one)) == ([], 0, "commit", 0)


def test_snapshots_of_before_there_were_several_messages_in_a_half_are_read() -> None:
    halves = Halves()
    halves.restore([[[5, "commit"]], [[7, "g", 7, 100, 3, 1, 0, ""]]])
    assert (halves.outcome(5), halves.get(7), halves.unfinished()) == ("commit", Half("g", 7, 100, 3, 1), [])
