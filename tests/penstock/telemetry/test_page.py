"""The page: it needs nothing else, runs nothing, and shows what the figures say."""

from __future__ import annotations

import re
from base64 import b64decode
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser

from penstock.telemetry.day import Day
from penstock.telemetry.page import page

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOSTILE = '<script>alert(1)</script>"$\\frac$'


class Tags(HTMLParser):
    """Which elements a page has, and where it points."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def a_day(name: str) -> Day:
    return Day(
        date(2026, 3, 1),
        "telemetry",
        readings=1234,
        refused=1,
        devices=21,
        metrics=3,
        rates=[{"at": AT, "readings": 1234, "refused": 1}],
        busiest=[{"device": name, "readings": 1234, "metrics": 3, "first": AT, "last": AT + timedelta(hours=1)}],
        values=[
            {"metric": one, "at": AT + timedelta(minutes=10 * at), "mean": 2.0, "min": 1.0, "max": 3.0}
            for one in (name, "hum", "气")
            for at in range(2)
        ],
        gaps=[{"device": name, "metric": "t", "gap_start": AT, "gap_end": None, "silent_s": 90.5, "usual_s": 10.0}],
        gaps_all=1,
        alerts=[{"event_time": AT, "device": "d1", "metric": "t", "rule": "t > 1", "value": 3.25, "score": None}],
        alerts_all=101,
        rules=["t > 1"],
    )


def test_the_page_is_one_file_that_runs_nothing_whatever_devices_are_called() -> None:
    text = page(a_day(HOSTILE))
    found = Tags(text)
    assert not {"script", "link", "iframe"} & set(found.tags)
    assert len(found.links) == found.tags.count("img") == 2
    for link in found.links:
        kind, _, data = link.partition(",")
        assert kind == "data:image/svg+xml;base64"
        assert b"<svg" in b64decode(data)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert found.tags.count("td") == 5 + 6 + 6


def test_the_page_says_what_the_figures_say() -> None:
    text = re.sub(r"<[^>]+>", " ", page(a_day("d1")))
    for told in ("telemetry on Sunday, 2026-03-01", "1,234 readings", "20 of 21 devices are shown", "Gaps: 1"):
        assert told in " ".join(text.split()), told
    assert "100 of 101 alerts are shown" in text
    assert " ".join(text.split()).endswith("d1 t t &gt; 1 3.25 - Rules: t &gt; 1 100 of 101 alerts are shown.")


def test_a_day_without_a_reading_says_so() -> None:
    text = page(Day(date(2026, 3, 1), "telemetry"))
    assert "No reading has an event time on this day." in text
    assert "<img" not in text
