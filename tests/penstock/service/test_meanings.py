"""What figures mean."""

from __future__ import annotations

from pathlib import Path

from penstock.service.meanings import MEANINGS, meaning_of

PAGE = (Path(__file__).parents[3] / "docs" / "guide" / "metrics.md").read_text()


def test_each_is_one_line_that_neither_format_has_to_escape() -> None:
    assert [text for text in MEANINGS.values() if not (text.isascii() and text.isprintable())] == []
    assert [text for text in MEANINGS.values() if set(text) & set('\\"') or text[-1] != "."] == []


def test_the_metrics_page_names_every_figure_that_has_a_meaning() -> None:
    assert [family for family in MEANINGS if f"`{family}`" not in PAGE] == []


def test_what_limits_refused_is_told_by_the_limits_name() -> None:
    assert meaning_of("gateway_refused_receive_max_total") == "What the gateway's limit receive_max turned away."


def test_nobody_knows_what_an_odd_figure_means() -> None:
    assert meaning_of("odd_total") == ""
