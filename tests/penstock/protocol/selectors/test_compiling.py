"""Selectors from text to verdict: RocketMQ's own verdicts, a plain evaluator, and any text at all."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidFilter
from penstock.protocol.message import encode_properties
from penstock.protocol.selectors.compiling import Selector, selector_of
from penstock.protocol.selectors.lexer import WORDS
from penstock.protocol.selectors.parser import parse
from penstock.protocol.selectors.values import BODY_BYTES_MAX
from tests.penstock.protocol.selectors.naive import Message, Mismatch, evaluate, written
from tests.penstock.protocol.selectors.trees import conditions, encoded, messages

HERE = Path(__file__).parent
JARS = ("rocketmq-filter", "rocketmq-common", "guava", "failureaccess")
WORD = ("false", "true", "null", "error")


class Row(NamedTuple):
    """An expression, and what RocketMQ 5.5 says of it for a message with these properties; ``ours`` where we differ."""

    verdict: str
    ours: str
    properties: str
    expression: str

    @property
    def text(self) -> str:
        return self.expression.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r")

    @property
    def encoded(self) -> bytes:
        pairs = [pair.partition("=") for pair in self.properties.split(";") if pair]
        return encode_properties({name: value for name, _, value in pairs})


def rows() -> list[Row]:
    lines = (HERE / "verdicts.tsv").read_text().splitlines()[1:]
    return [Row(*line.split("\t")) for line in lines]


def verdict_of(text: str, properties: bytes) -> str:
    try:
        return WORD[Selector(text).verdict(properties)]
    except InvalidFilter:
        return "refused"


def test_every_expression_of_the_table_has_the_verdict_of_rocketmq() -> None:
    table = rows()
    assert len(table) >= 200
    wrong = {
        (row.expression, row.properties): (said, row.ours or row.verdict)
        for row in table
        if (said := verdict_of(row.text, row.encoded)) != (row.ours or row.verdict)
    }
    assert wrong == {}


def jars() -> list[str]:
    """RocketMQ's filter and what it needs, where Maven has it; never part of this repository."""
    repository = Path.home() / ".m2" / "repository"
    found = {name: sorted(repository.rglob(f"{name}-[0-9]*.jar")) for name in JARS}
    return [str(paths[-1]) for paths in found.values() if paths]


@pytest.mark.slow
@pytest.mark.endtoend
def test_the_table_holds_what_rocketmq_itself_says() -> None:
    java, path = shutil.which("java"), jars()
    if java is None or shutil.which("javac") is None or len(path) < len(JARS):
        pytest.skip("RocketMQ's jars or a Java compiler are not here")
    table = rows()
    said = subprocess.run(
        [java, "-cp", ":".join(path), str(HERE / "Verdicts.java")],
        input="".join(f"{row.properties}\t{row.expression}\n" for row in table),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    ).stdout.splitlines()
    assert said == [row.verdict for row in table]


@given(tree=conditions, message=messages)
@settings(max_examples=100)
def test_a_tree_that_is_written_out_is_read_as_itself_and_judged_as_plainly(tree, message: Message) -> None:  # type: ignore[no-untyped-def]
    text = written(tree)
    assert parse(text)[0] == tree
    try:
        plain = {True: "true", False: "false", None: "null"}[evaluate(tree, message)]
    except Mismatch:
        plain = "error"
    properties, body = encoded(message)
    selector = selector_of(text)
    assert WORD[selector.verdict(properties, body)] == plain
    assert selector.matches(properties, body) == (plain == "true")


PIECES = "LIKE ESCAPE a b9 $.a.b 5 0 5.5 1e5 99999999999999999999 'x' ' = <> < <= > >= ( ) , + - -- /* */ . $ ! é"
pieces = st.sampled_from([*PIECES.split(), "\n", "\ud800", *sorted(WORDS)])


@given(text=st.lists(pieces, max_size=40).map(" ".join) | st.text(max_size=60), message=messages)
@settings(max_examples=150)
def test_any_text_gives_a_filter_or_one_clear_error(text: str, message: Message) -> None:
    error = None
    try:
        selector = Selector(text)
    except InvalidFilter as caught:
        error = caught
    if error is None:
        assert selector.verdict(*encoded(message)) in range(4)
    else:
        assert 0 <= error.at <= len(text)
        assert error.message.startswith(("filter, at ", "a filter "))


@given(properties=st.binary(max_size=80), body=st.binary(max_size=80))
@settings(max_examples=75)
def test_any_bytes_of_a_message_give_a_verdict(properties: bytes, body: bytes) -> None:
    selector = selector_of("a > 5 OR $.a.b > 5.5 OR b LIKE '_%x' OR $.a LIKE '%x%' OR a = TRUE OR b > a")
    assert selector.verdict(properties, body) in range(4)


def test_a_selector_says_whether_it_looks_into_bodies() -> None:
    assert Selector("$.a = 1").reads_body
    assert not Selector("a = 1").reads_body


def test_fields_of_a_body_are_typed() -> None:
    body = b'{"a": {"b": 5, "c": "x", "d": true, "e": null, "f": [1], "g": 5.5}}'
    for text in ("$.a.b = 5", "$.a.b < 6.5", "$.a.c = 'x'", "$.a.d", "$.a.d = TRUE", "$.a.e IS NULL", "$.a.g > 5"):
        assert Selector(text).matches(b"", body), text
    for text in ("$.a.b = '6'", "$.a.f = 1", "$.a.d > 0", "$.a.c", "$.a.c.d IS NOT NULL", "$.b IN ('x')"):
        assert not Selector(text).matches(b"", body), text


def test_a_whole_number_of_a_body_that_java_cannot_hold_is_a_double() -> None:
    assert Selector("$.a > 1.5e300 AND $.a > 5").matches(b"", b'{"a": 1' + b"0" * 400 + b"}")
    assert Selector("$.a < -1.5e300").verdict(b"", b"{}") == Selector("NULL").verdict(b"")


def test_a_truth_value_is_neither_greater_nor_less() -> None:
    for text in ("$.a < 5", "$.a > -5", "a < $.a", "NOT ($.a < 5)"):
        assert WORD[Selector(text).verdict(b"a\x010", b'{"a": true}')] == "error", text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"5",
        b"[1]",
        b"{",
        b"\xff",
        b'{"a": NaN}',
        b"[" * 100_000,
        b'{"a": ' * 10_000,
        b'{"a": 1}'.ljust(BODY_BYTES_MAX + 1),
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_body_that_is_no_small_json_object_has_no_fields(body: bytes) -> None:
    assert Selector("$.a IS NULL").matches(b"", body)


def test_a_body_of_the_greatest_size_is_looked_into() -> None:
    assert Selector("$.a = 1").matches(b"", b'{"a": 1}'.ljust(BODY_BYTES_MAX))


def test_a_name_is_found_as_a_whole_only() -> None:
    assert not Selector("b = '1'").matches(b"ab\x011\x02c\x01b\x01")
    assert Selector("b = '1'").matches(b"ab\x012\x02b\x011")
    assert Selector("b = '1'").matches(b"b\x011\x02")
