"""Which epochs of gateways are over, and who leads one."""

from __future__ import annotations

from broker.sessions.gateway_epochs import GATEWAY_EPOCHS_MAX, GatewayEpochs
from tests.broker.facts import take


def epochs(*bodies: list[object]) -> GatewayEpochs:
    """What is known behind records with these bodies, at the positions 0, 1 and so on."""
    made = GatewayEpochs()
    for position, body in enumerate(bodies):
        take(made, body, position)
    return made


def begin(owner: str, epoch: str, fresh: bool = False) -> list[object]:
    return GatewayEpochs.beginning(owner, epoch, fresh)


def test_another_epoch_of_an_owner_ends_the_one_before() -> None:
    known = epochs(begin("g", "a"), begin("h", "b"), begin("g", "c"))
    assert (known.of("g"), known.of("h"), known.owners) == ("c", "b", ["h", "g"])
    assert list(known.over) == ["a"]


def test_an_epoch_that_begins_twice_goes_on() -> None:
    known = epochs(begin("g", "a"), begin("g", "a"))
    assert (known.of("g"), list(known.over)) == ("a", [])


def test_who_leads_an_epoch_that_is_ended_leads_none() -> None:
    known = epochs(begin("g", "a"), begin("h", "b"), GatewayEpochs.ending(["a", "x"]))
    assert (known.of("g"), known.of("h"), list(known.over)) == ("", "b", ["a", "x"])


def test_what_ended_since_is_told_in_order_and_all_of_it_to_whoever_knows_nothing() -> None:
    known = epochs(GatewayEpochs.ending(["a", "b"]), GatewayEpochs.ending(["c"]))
    assert known.over_after("a") == ("b", "c")
    assert known.over_after("c") == ()
    assert known.over_after("") == known.over_after("of another home") == ("a", "b", "c")


def test_of_very_many_the_latest_are_known() -> None:
    many = [f"{number}" for number in range(GATEWAY_EPOCHS_MAX + 2)]
    known = epochs(GatewayEpochs.ending(many), *[begin(one, f"of {one}", True) for one in many])
    assert list(known.over) == many[2:]
    assert known.owners == many[2:]
    assert list(known.began) == many[2:]


def test_a_snapshot_brings_it_all_back() -> None:
    known = epochs(begin("g", "a", True), begin("h", "b"), GatewayEpochs.ending(["y", "a"]))
    again = GatewayEpochs()
    again.restore(known.snapshot())
    assert (list(again.over), again.of("h"), again.owners, again.began) == (["y", "a"], "b", ["h"], {"g": 0})


def test_where_a_process_began_stays_known_through_its_lives_until_the_next_begins() -> None:
    known = epochs(
        begin("g", "a", True), begin("g", "b"), GatewayEpochs.ending(["b"]), begin("h", "c"), begin("g", "d")
    )
    assert known.began == {"g": 0}
    take(known, begin("g", "e", True), 9)
    assert known.began == {"g": 9}


def test_records_and_snapshots_of_older_brokers_tell_of_no_process_that_began() -> None:
    known = epochs(["begin", "g", "a"])
    known.restore(known.snapshot()[:2])
    assert (known.of("g"), known.began) == ("a", {})
