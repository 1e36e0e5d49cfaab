from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from events.facts import Facts, StoredFact
from tests.events.stored import stored


def test_the_latest_fact_of_a_name_stands() -> None:
    facts = Facts()
    assert facts.fold(stored(10, "rule/b/r", 1, 5))
    assert facts.fold(stored(20, "rule/b/r", 2, 6, created_ms=5))
    found = facts.get("rule", "b", "r")
    assert found is not None
    assert (found.spec, found.revision, found.created_ms) == (2, 20, 5)
    assert not facts.fold(stored(15, "rule/b/r", 3))
    assert facts.fold(stored(30, "rule/b/r", None))
    assert facts.get("rule", "b", "r") is None
    assert not facts.fold(stored(40, "rule/b/r", None))


def test_what_stands_is_listed_by_bus_and_name() -> None:
    facts = Facts()
    for position, key in enumerate(["rule/b/2", "rule/b/1", "rule/a/x", "bus/a/"], start=1):
        facts.fold(stored(position, key, {}))
    assert [(one.bus, one.name) for one in facts.all("rule")] == [("a", "x"), ("b", "1"), ("b", "2")]
    assert [one.name for one in facts.all("rule", "b")] == ["1", "2"]
    assert facts.all("bus")[0].document() == {"name": "a", "revision": 4, "spec": {}}


@given(st.text(), st.binary(min_size=1))
def test_what_is_no_fact_is_passed_over(name: str, body: bytes) -> None:
    facts = Facts()
    assert not facts.fold(StoredFact(7, name, body, 0))
    assert not facts.fold(StoredFact(8, "$events/rule/b/r", body, 0))
    assert (facts.position, list(facts)) == (8, [])


writes = st.lists(st.tuples(st.sampled_from(["rule/b/x", "rule/b/y"]), st.none() | st.integers(1, 9)))


@given(writes, st.integers(0, 20), st.integers(0, 20))
def test_who_begins_with_what_stands_knows_what_who_read_all_knows(
    given: list[tuple[str, int | None]], fetched: int, begun: int
) -> None:
    log = [stored(position, key, spec) for position, (key, spec) in enumerate(given, start=1)]
    whole, late = Facts(), Facts()
    stands: dict[str, StoredFact] = {}
    for one in log[:fetched]:
        stands.pop(one.name, None)
        stands |= {one.name: one} if one.body else {}
    late.begin(stands.values())
    for one in log:
        whole.fold(one)
    for one in log[min(begun, fetched) :]:  # some of the log is among what stands
        late.fold(one)
    assert {(one.name, one.spec, one.revision) for one in whole} == {(o.name, o.spec, o.revision) for o in late}
