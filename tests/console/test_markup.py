from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from console import markup

EVIL = "\"'><script>alert(1)</script>&"


class Tags(HTMLParser):
    """Which tags and attributes a page has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def everything(text: str) -> Markup:
    """A page with a text in all places where one may be."""
    form = markup.action("/do", text, text, {text: text}, [markup.field(text, text, text, hint=text)], kind="danger")
    return markup.page(
        text,
        "/",
        markup.joined(
            [
                markup.table(text, (f"{text}.", f"{text}#"), [(text, 1), (markup.link(text, "/x", name=text), None)]),
                markup.facts([(text, text)]),
                markup.search("/x", [markup.choice(text, text, [(text, text)], text)], text, {text: text}),
                markup.asked(text, text, form),
                markup.badge(text),
                markup.chart(text, markup.address("/x", name=text), text),
                markup.live(markup.address("/x", name=text), markup.section(text)),
            ]
        ),
        user=text,
        csrf=text,
        said=[text],
    )


@given(st.text(min_size=1, max_size=40))
def test_no_text_becomes_a_tag_or_an_attribute(text: str) -> None:
    plain, other = Tags(str(everything("x"))), Tags(str(everything(text)))
    assert (plain.tags, plain.attributes) == (other.tags, other.attributes)


def test_a_script_in_a_value_is_text() -> None:
    page = str(everything(EVIL))
    assert "<script>alert" not in page
    assert not re.search(r"\son\w+=|style=|javascript:", page)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.5, "0.5 s"), (5, "5 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 d")]
)
def test_durations(seconds: float, said: str) -> None:
    assert markup.duration(seconds) == said


def test_numbers_sizes_and_moments() -> None:
    assert [str(markup.number(one)) for one in (1234567, 0.5, 123.45)] == ["1,234,567", "0.5", "123"]
    assert "none" in markup.number(-1)
    assert "none" in markup.number(None)
    assert [markup.size(one) for one in (0, 1023, 1536, 5 << 40)] == ["0 B", "1,023 B", "1.5 KiB", "5.0 TiB"]
    assert "2026-11-28 10:00:00 UTC" in markup.moment(1_795_860_000_000)
    assert "none" in markup.moment(0)
    assert "none" in markup.moment(1 << 62)
