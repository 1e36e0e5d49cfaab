"""A day's figures as one HTML file that needs nothing else: its plots are images within it.

Names come from devices, so every text is escaped, and the plots are pictures that can run nothing.
"""

from __future__ import annotations

import warnings
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from io import BytesIO
from typing import Any, Final

from penstock.errors import InvalidConfig
from penstock.telemetry.day import ALERTS_MAX, DEVICES_MAX, GAPS_MAX, METRICS_MAX, STEP_MINUTES, Day, Row

_COLOURS: Final = ("#1f6f8b", "#c8553d", "#b8d8e3")
_NAME_MAX: Final = 48
_COLUMNS: Final = 2
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title><style>
body {{ font: 15px/1.45 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }}
h1, h2 {{ font-weight: 600 }}
h2 {{ margin-top: 2.2rem; font-size: 1.15rem }}
.figures {{ display: flex; flex-wrap: wrap; gap: 2.5rem }}
.figures b {{ display: block; font-size: 1.7rem; font-weight: 600 }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; padding: .25rem .8rem .25rem 0; overflow-wrap: anywhere }}
th {{ border-bottom: 1px solid #bbb; font-weight: 600 }}
td.n, th.n {{ text-align: right; font-variant-numeric: tabular-nums }}
img {{ max-width: 100% }}
p.note {{ color: #666 }}
</style></head><body>
<h1>{title}</h1>
{body}
</body></html>
"""


def page(day: Day) -> str:
    """The report. Raises ``InvalidConfig`` where matplotlib is missing."""
    title = escape(f"{day.topic} on {day.day:%A}, {day.day}")
    sections = [_totals(day)]
    if not day.readings and not day.refused:
        sections.append('<p class="note">No reading has an event time on this day.</p>')
        return _PAGE.format(title=title, body="\n".join(sections))
    sections += [
        _section(f"Readings every {STEP_MINUTES} minutes", _picture("rates", lambda figure: _rates(figure, day))),
        _section("Devices with most readings", _table(day.busiest, ("device", "readings", "metrics", "first", "last"))),
        _note(day.devices, DEVICES_MAX, "devices"),
    ]
    names = list(dict.fromkeys(row["metric"] for row in day.values))
    if names:
        height = 2.0 * -(-len(names) // _COLUMNS) + 0.3
        picture = _picture("values", lambda figure: _values(figure, day, names), height)
        sections += [
            _section("Values: mean, with least and greatest", picture),
            _note(day.metrics, METRICS_MAX, "metrics"),
        ]
    gap_columns = ("device", "metric", "gap_start", "gap_end", "silent_s", "usual_s")
    sections += [
        _section(f"Gaps: {day.gaps_all:,}", _table(day.gaps, gap_columns)),
        _note(day.gaps_all, GAPS_MAX, "gaps"),
        _section(
            f"Alerts: {day.alerts_all:,}",
            _table(day.alerts, ("event_time", "device", "metric", "rule", "value", "score")),
        ),
        f'<p class="note">Rules: {escape(", ".join(day.rules))}</p>',
        _note(day.alerts_all, ALERTS_MAX, "alerts"),
    ]
    return _PAGE.format(title=title, body="\n".join(sections))


def _totals(day: Day) -> str:
    figures = (
        (day.readings, "readings"),
        (day.refused, "payloads refused"),
        (day.devices, "devices"),
        (day.metrics, "metrics"),
        (day.gaps_all, "gaps"),
        (day.alerts_all, "alerts"),
    )
    cells = "".join(f"<div><b>{count:,}</b>{name}</div>" for count, name in figures)
    return f'<div class="figures">{cells}</div>\n<p class="note">All times are UTC.</p>'


def _section(title: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{body}"


def _note(count: int, most: int, what: str) -> str:
    return f'<p class="note">{most} of {count:,} {what} are shown.</p>' if count > most else ""


def _table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    if not rows:
        return "<p>None.</p>"
    numbers = {name for name in columns if all(isinstance(row[name], int | float | None) for row in rows)}
    head = "".join(f"<th{_class(name, numbers)}>{escape(name.replace('_', ' '))}</th>" for name in columns)
    lines = [
        f"<tr>{''.join(f'<td{_class(name, numbers)}>{_cell(row[name])}</td>' for name in columns)}</tr>" for row in rows
    ]
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{chr(10).join(lines)}\n</tbody></table>"


def _class(name: str, numbers: set[str]) -> str:
    return ' class="n"' if name in numbers else ""


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%H:%M:%S")
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.4g}"
    return escape(f"{value:,}" if isinstance(value, int) else str(value))


# ---------------------------------------------------------------- plots


def _picture(name: str, draw: Callable[[Any], None], height: float = 2.4) -> str:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        hint = "`pip install 'penstock[spark]'` brings it"
        raise InvalidConfig(f"matplotlib is not installed: {error}", hint=hint) from None
    given: Any = {"text.parse_math": False, "svg.hashsalt": name, "font.size": 8, "axes.spines.top": False}
    with rc_context(given | {"axes.spines.right": False}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a font may lack letters of a device's name
        figure = Figure(figsize=(10, height), layout="constrained")
        draw(figure)
        out = BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return f'<img alt="{name}" src="data:image/svg+xml;base64,{b64encode(out.getvalue()).decode()}">'


def _rates(figure: Any, day: Day) -> None:
    axes = figure.subplots()
    at = [row["at"] for row in day.rates]
    width = timedelta(minutes=STEP_MINUTES)
    axes.bar(at, [row["readings"] for row in day.rates], width, align="edge", color=_COLOURS[0], label="readings")
    if day.refused:
        axes.bar(at, [row["refused"] for row in day.rates], width, align="edge", color=_COLOURS[1], label="refused")
        axes.legend(frameon=False)
    _hours(axes, day)


def _values(figure: Any, day: Day, names: Sequence[str]) -> None:
    lines = -(-len(names) // _COLUMNS)
    every = figure.subplots(lines, _COLUMNS, squeeze=False).flatten()
    for axes, name in zip(every, names, strict=False):
        rows = [row for row in day.values if row["metric"] == name]
        at = [row["at"] for row in rows]
        axes.fill_between(at, [row["min"] for row in rows], [row["max"] for row in rows], color=_COLOURS[2])
        axes.plot(at, [row["mean"] for row in rows], color=_COLOURS[0], marker="." if len(rows) == 1 else None)
        axes.set_title(name[:_NAME_MAX], loc="left")
        _hours(axes, day)
    for axes in every[len(names) :]:
        axes.remove()


def _hours(axes: Any, day: Day) -> None:
    from matplotlib import dates

    kinds: Any = dates
    start = datetime(day.day.year, day.day.month, day.day.day, tzinfo=UTC)
    axes.set_xlim(start, start + timedelta(days=1))
    axes.xaxis.set_major_locator(kinds.HourLocator(byhour=range(0, 24, 3), tz=UTC))
    axes.xaxis.set_major_formatter(kinds.DateFormatter("%H:%M", tz=UTC))
    axes.margins(y=0.1)
