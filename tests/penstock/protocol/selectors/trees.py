"""Any small tree of a selector that the grammar has, and messages that it may meet, for Hypothesis."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from penstock.protocol.message import encode_properties
from penstock.protocol.selectors import syntax
from tests.penstock.protocol.selectors.naive import JAVA, Message

NAMES = ("a", "b", "like", "_$9")
texts = st.sampled_from(sorted(JAVA))
properties = st.sampled_from(NAMES).map(syntax.Property)
fields = st.sampled_from([("a",), ("b", "c"), ("b",), ("0",)]).map(syntax.Field)
named = properties | fields
numbers = st.sampled_from([0, 5, 7, 3_000_000_000, 5.0, 5.5, 3e9]).map(syntax.Constant)
strings = texts.map(syntax.Constant)
truths = st.sampled_from([True, False]).map(syntax.Constant)
patterns = st.lists(st.sampled_from(["%", "_", "x", "y", "5", "!%", "!!"]), max_size=5).map("".join)


def is_legal(pair: tuple[syntax.Value, syntax.Value]) -> bool:
    """Whether RocketMQ's grammar lets these be equal or unequal."""
    left, right = pair
    return not (
        isinstance(left, syntax.Constant)
        and isinstance(right, syntax.Constant)
        and isinstance(left.value, bool)
        and not isinstance(right.value, bool)
    )


def grown(terms: st.SearchStrategy[syntax.Condition]) -> st.SearchStrategy[syntax.Condition]:
    inner = terms.filter(lambda one: not isinstance(one, syntax.Truth | syntax.Constant))
    negated = (named | numbers | strings | inner).map(syntax.Negated)
    ordered = named | numbers | negated
    compared = named | numbers | strings | truths | negated | inner
    several = st.lists(terms, min_size=2, max_size=4).map(tuple)
    yes = st.booleans()
    orders = st.sampled_from(["<", "<=", ">", ">="])
    return st.one_of(
        terms.map(syntax.Not),
        several.map(syntax.And),
        several.map(syntax.Or),
        st.tuples(compared, compared)
        .filter(is_legal)
        .flatmap(lambda pair: st.sampled_from(["=", "<>"]).map(lambda sign: syntax.Comparison(pair[0], sign, pair[1]))),
        st.builds(syntax.Comparison, ordered, orders, ordered),
        st.builds(syntax.IsNull, compared | st.just(syntax.Constant(None)), yes),
        st.builds(syntax.OneOf, named, st.frozensets(texts, min_size=1, max_size=3), yes),
        st.builds(syntax.TextSearch, compared, st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]), texts, yes),
        st.builds(syntax.Like, compared, patterns, st.just("!"), yes),
    )


leaves = named.map(syntax.Truth) | st.sampled_from([True, False, None]).map(syntax.Constant)
conditions = st.recursive(leaves, grown, max_leaves=8)
values = st.one_of(texts, st.sampled_from([5, -7, 3_000_000_000, 5.5, 5.0, True, False, None]))
documents = st.fixed_dictionaries({}, optional={"a": values, "b": values | st.fixed_dictionaries({"c": values})})
messages = st.builds(Message, st.dictionaries(st.sampled_from(NAMES), texts), documents)


def encoded(message: Message) -> tuple[bytes, bytes]:
    """Property string and body."""
    return encode_properties(message.properties), json.dumps(dict(message.document)).encode()
