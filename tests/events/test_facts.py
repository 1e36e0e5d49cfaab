from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from events.facts import ANY, NONE, Facts, encode, key_of


def test_a_fact_stands_if_it_replaces_what_stood() -> None:
    facts, key = Facts(), key_of("rule", "b", "r")
    assert facts.fold(0, key, encode(1, NONE), 5)
    assert not facts.fold(1, key, encode(2, NONE), 6)
    assert facts.fold(2, key, encode(3, 1), 7)
    assert facts.fold(3, key, encode(4, ANY), 8)
    found = facts.get("rule", "b", "r")
    assert found is not None
    assert (found.spec, found.revision, found.created_ms) == (4, 4, 5)
    assert facts.fold(4, key, encode(None, 4), 9)
    assert facts.get("rule", "b", "r") is None
    assert not facts.fold(5, key, encode(None, ANY), 9)


def test_what_stands_is_listed_by_bus_and_name() -> None:
    facts = Facts()
    for offset, key in enumerate(["rule/b/2", "rule/b/1", "rule/a/x", "bus/a/"]):
        facts.fold(offset, key, encode({}, ANY), 0)
    assert [(one.bus, one.name) for one in facts.all("rule")] == [("a", "x"), ("b", "1"), ("b", "2")]
    assert [one.name for one in facts.all("rule", "b")] == ["1", "2"]
    assert facts.all("bus")[0].document() == {"name": "a", "revision": 4, "spec": {}}


@given(st.text(), st.binary())
def test_what_is_no_fact_is_passed_over(key: str, body: bytes) -> None:
    facts = Facts()
    assert not facts.fold(7, key, body, 0)
    assert (facts.offset, list(facts)) == (8, [])


writes = st.lists(st.tuples(st.sampled_from(["rule/b/x", "rule/b/y"]), st.integers(-1, 4), st.none() | st.just(1)))


@given(writes)
def test_all_readers_of_one_log_agree_and_a_compare_and_set_is_exact(given: list[tuple[str, int, object]]) -> None:
    one, revisions = Facts(), dict.fromkeys(["rule/b/x", "rule/b/y"], NONE)
    for offset, (key, replaces, spec) in enumerate(given):
        stands = replaces in (ANY, revisions[key]) and not (spec is None and revisions[key] == NONE)
        assert one.fold(offset, key, encode(spec, replaces), 0) == stands
        if stands:
            revisions[key] = NONE if spec is None else offset + 1
