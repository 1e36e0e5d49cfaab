from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from events.cloudevents import Event, from_document
from events.pattern import Pattern
from events.pattern_index import PatternIndex

names = st.sampled_from(["a", "b", "c"])
terms = st.lists(names, min_size=1, max_size=2, unique=True) | st.just([{"prefix": "a"}])
keys = st.fixed_dictionaries({}, optional={"type": terms, "source": terms, "subject": terms})


def event(of_type: str, source: str) -> Event:
    return from_document({"specversion": "1.0", "id": "1", "type": of_type, "source": source})


@given(st.lists(keys, max_size=8), names, names)
def test_the_index_finds_exactly_the_rules_that_match(
    specs: list[dict[str, object]], of_type: str, source: str
) -> None:
    patterns = [Pattern(spec) if spec else None for spec in specs]
    found = PatternIndex(enumerate(patterns)).matching(event(of_type, source))
    wanted = [at for at, one in enumerate(patterns) if one is None or one.matches(event(of_type, source))]
    assert sorted(found) == wanted
