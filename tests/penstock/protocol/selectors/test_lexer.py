"""Tokens of selectors, each with its place."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidFilter
from penstock.protocol.selectors.lexer import LITERAL_BYTES_MAX, TEXT_BYTES_MAX, Token, tokens_of


def kinds(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in tokens_of(text)[:-1]]


def test_every_kind_of_token_has_its_place() -> None:
    assert tokens_of("a<>5.0 Or $.b.c='it''s'") == [
        Token("name", "a", 0),
        Token("sign", "<>", 1),
        Token("float", "5.0", 3),
        Token("word", "OR", 7),
        Token("field", "$.b.c", 10),
        Token("sign", "=", 15),
        Token("string", "it's", 16),
        Token("end", "", 23),
    ]


def test_the_longest_token_counts() -> None:
    assert kinds("5.e3 .5 5E-1 17L 0 >= _a$ order") == [
        ("float", "5.e3"),
        ("float", ".5"),
        ("float", "5E-1"),
        ("whole", "17L"),
        ("whole", "0"),
        ("sign", ">="),
        ("name", "_a$"),
        ("name", "order"),
    ]


def test_comments_and_white_space_say_nothing() -> None:
    assert kinds(" \t\f\r\na -- x\n/* b ** / '*/c--d") == [("name", "a"), ("name", "c")]


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("a = 'x", 4, "no closing quote"),
        ("a /* b", 2, "no end"),
        ('a = "x"', 4, "single quotes"),
        ("a != 1", 2, "unequal is written <>"),
        ("a = é", 4, "means nothing"),
        ("a.b = 1", 1, "means nothing"),
        ("a = '\ud800'", 5, "valid Unicode"),
    ],
)
def test_what_is_no_token_is_told_with_its_place(text: str, at: int, says: str) -> None:
    with pytest.raises(InvalidFilter, match=says) as caught:
        tokens_of(text)
    assert caught.value.at == at
    assert f"at character {at + 1}" in str(caught.value)


def test_literals_and_the_whole_text_are_bounded() -> None:
    assert tokens_of("'" + "é" * (LITERAL_BYTES_MAX // 2) + "'")
    with pytest.raises(InvalidFilter, match="at most 1024 bytes"):
        tokens_of("'" + "é" * (LITERAL_BYTES_MAX // 2) + "x'")
    assert tokens_of(" " * TEXT_BYTES_MAX)
    with pytest.raises(InvalidFilter, match="at most 65536 bytes"):
        tokens_of(" " * (TEXT_BYTES_MAX + 1))
