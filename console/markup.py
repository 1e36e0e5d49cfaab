"""Parts of pages: escaped text, tables, forms, links, the frame of a page. Pure.

A part is a ``Markup``, which knows that it is escaped; whatever else is put into one is escaped then. So no value of a
message, a topic or a user becomes a tag, an attribute or a script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final
from urllib.parse import urlencode

from markupsafe import Markup

Cell = str | Markup | int | float | None

NAVIGATION: Final = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/messages", "Messages"),
    ("/groups", "Groups"),
    ("/letters", "Dead letters"),
    ("/sleeping", "Transactions & timers"),
    ("/clients", "MQTT clients"),
    ("/filters", "Subscriptions"),
    ("/retained", "Retained"),
    ("/events", "Event rules"),
    ("/brokers", "Brokers"),
    ("/access", "Users & rules"),
    ("/audit", "Audit log"),
)
NOTHING: Final = Markup("")
_DASH: Final = Markup('<span class="none" aria-label="none">–</span>')
_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


def joined(parts: Iterable[Markup]) -> Markup:
    """Parts, joined."""
    return NOTHING.join(parts)


def address(path: str, **query: object) -> str:
    """The address of a page; what is empty is left out."""
    given = {name.rstrip("_"): str(value) for name, value in query.items() if value not in ("", None)}
    return f"{path}?{urlencode(given)}" if given else path


def link(text: Cell, path: str, **query: object) -> Markup:
    """A link to a page of the console."""
    return Markup('<a href="{}">{}</a>').format(address(path, **query), _cell(text))


def number(value: float | None) -> Markup:
    """A number with separators; a dash for none or an unknown number (less than 0)."""
    if value is None or value < 0:
        return _DASH
    return Markup("{}").format(f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.1f}")


def size(value: float) -> str:
    """Bytes with a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" or value >= 100 else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:,.0f} s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:,.1f} s"


def moment(ms: int) -> Markup:
    """Milliseconds since 1970 in UTC; the browser shows them in its own time (console.js)."""
    if not 0 < ms < 253_402_300_800_000:
        return _DASH
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(
        at.isoformat(timespec="milliseconds"), f"{at:%Y-%m-%d %H:%M:%S}"
    )


def badge(text: str, kind: str = "") -> Markup:
    """A word in a frame. ``kind``: ``good``, ``warning`` or ``error``."""
    return Markup('<span class="badge {}">{}</span>').format(kind, text)


def sentence(text: str) -> Markup:
    """A sentence of its own."""
    return Markup("<p>{}</p>").format(text)


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str = "nothing") -> Markup:
    """A table. A column whose title ends in ``#`` has numbers."""
    numeric = [one.endswith("#") for one in columns]
    heads = joined(
        [
            Markup('<th scope="col"{}>{}</th>').format(_numeric(is_number), title.removesuffix("#"))
            for title, is_number in zip(columns, numeric, strict=True)
        ]
    )
    lines = []
    for row in rows:
        cells = []
        for at, (cell, is_number) in enumerate(zip(row, numeric, strict=True)):
            tag = Markup('<th scope="row">{}</th>' if at == 0 else "<td{}>{}</td>")
            cells.append(tag.format(_cell(cell)) if at == 0 else tag.format(_numeric(is_number), _cell(cell)))
        lines.append(Markup("<tr>{}</tr>").format(joined(cells)))
    if not lines:
        return Markup('<p class="empty">{}</p>').format(empty)
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="{0}"><table><caption>{0}</caption>'
        "<thead><tr>{1}</tr></thead><tbody>{2}</tbody></table></div>"
    ).format(caption, heads, joined(lines))


def _numeric(is_number: bool) -> Markup:
    return Markup(' class="number"') if is_number else NOTHING


def _cell(cell: Cell) -> Markup:
    if isinstance(cell, Markup):
        return cell
    if cell is None or cell == "":
        return _DASH
    if isinstance(cell, str):
        return Markup("{}").format(cell)
    return number(cell)


def facts(pairs: Iterable[tuple[str, Cell]]) -> Markup:
    """Names and values."""
    rows = [Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(name, _cell(value)) for name, value in pairs]
    return Markup('<dl class="facts">{}</dl>').format(joined(rows))


def field(label: str, name: str, value: str = "", *, kind: str = "text", hint: str = "", more: str = "") -> Markup:
    """An input with its label. ``more``: further attributes, written by the console's own code alone."""
    described = Markup(' aria-describedby="hint-{}"').format(name) if hint else NOTHING
    note = Markup('<small id="hint-{}">{}</small>').format(name, hint) if hint else NOTHING
    return Markup('<label>{} <input type="{}" name="{}" value="{}"{}{}>{}</label>').format(
        label, kind, name, value, described, Markup(f" {more}" if more else ""), note
    )


def choice(label: str, name: str, options: Iterable[tuple[str, str]], chosen: str) -> Markup:
    """A list to choose from: values and their texts."""
    rows = [
        Markup('<option value="{}"{}>{}</option>').format(value, Markup(" selected" if value == chosen else ""), text)
        for value, text in options
    ]
    return Markup('<label>{} <select name="{}">{}</select></label>').format(label, name, joined(rows))


def search(path: str, parts: Iterable[Markup], submit: str = "Show", keeps: Mapping[str, str] = _EMPTY) -> Markup:
    """A form that asks for a page."""
    kept = joined([hidden_field(name, value) for name, value in keeps.items() if value])
    return Markup(
        '<div role="search"><form method="get" action="{}" class="search">{}{}<button>{}</button></form></div>'
    ).format(path, kept, joined(parts), submit)


def action(
    path: str, csrf: str, submit: str, hidden: Mapping[str, str], parts: Iterable[Markup] = (), *, kind: str = ""
) -> Markup:
    """A form that changes something. ``kind``: ``danger`` for what cannot be taken back."""
    kept = joined([hidden_field(name, value) for name, value in [*hidden.items(), ("csrf", csrf)]])
    return Markup('<form method="post" action="{}" class="action">{}{}<button class="{}">{}</button></form>').format(
        path, kept, joined(parts), kind, submit
    )


def asked(summary: str, warning: str, form: Markup) -> Markup:
    """A form behind a warning, which has to be opened first."""
    return Markup('<details class="asked"><summary>{}</summary><p>{}</p>{}</details>').format(summary, warning, form)


def hidden_field(name: str, value: str) -> Markup:
    """A field of a form that is not shown."""
    return Markup('<input type="hidden" name="{}" value="{}">').format(name, value)


def pager(first: str, following: str) -> Markup:
    """Links to the first and the next page; none where there are no others."""
    links = [Markup('<a href="{}" rel="first">First page</a>').format(first)] if first else []
    links += [Markup('<a href="{}" rel="next">Next page</a>').format(following)] if following else []
    return Markup('<nav class="pager" aria-label="Pages">{}</nav>').format(joined(links)) if links else NOTHING


def listing(path: str, hint: str, contains: str, after: object, following: object, rows: Markup) -> Markup:
    """A page of a list: a search by name, rows that are fetched again from ``path/live``, and links to other pages.

    Args:
        path: the page's.
        hint: what the search looks for.
        contains: the text that was searched for.
        after: the last key before the page; empty or 0 for the first page.
        following: ``after`` of the next page; empty or 0 if there is none.
        rows: the table.
    """
    next_page = address(path, after=following, contains=contains) if following else ""
    return joined(
        [
            search(path, [field("Find", "contains", contains, kind="search", hint=hint)], "Find"),
            live(address(f"{path}/live", after=after or "", contains=contains), rows, every_s=5),
            pager(address(path, contains=contains) if after else "", next_page),
        ]
    )


def live(path: str, content: Markup, *, every_s: int = 2) -> Markup:
    """A part of a page that is fetched again and again (htmx)."""
    return Markup('<div hx-get="{}" hx-trigger="every {}s" hx-swap="innerMorph">{}</div>').format(
        path, every_s, content
    )


def chart(title: str, source: str, unit: str) -> Markup:
    """A chart over time that console.js draws from a source of JSON (``Series.columns``)."""
    return Markup(
        '<figure class="chart" data-source="{}" data-unit="{}"><figcaption>{}</figcaption>'
        '<div class="plot" role="img" aria-label="{}"></div><p class="last"></p></figure>'
    ).format(source, unit, title, title)


def section(title: str, *parts: Markup) -> Markup:
    """A part of a page with its title."""
    return Markup("<section><h2>{}</h2>{}</section>").format(title, joined(parts))


def page(title: str, path: str, body: Markup, *, user: str = "", csrf: str = "", said: Iterable[str] = ()) -> Markup:
    """A whole page. ``path``: of its entry in the navigation; ``said``: results of actions."""
    entries = joined(
        [
            Markup('<li><a href="{}"{}>{}</a></li>').format(
                to, Markup(' aria-current="page"') if to == path else NOTHING, text
            )
            for to, text in NAVIGATION
        ]
    )
    told = joined([Markup('<p class="said" role="status">{}</p>').format(one) for one in said])
    out = action("/logout", csrf, f"Log out {user}", {}) if user else NOTHING
    menu = Markup(
        '<header class="bar"><a class="brand" href="/">Penstock</a>'
        '<details class="menu" open><summary>Menu</summary><nav aria-label="Main"><ul>{}</ul>'
        "</nav>{}</details></header>"
    ).format(entries, out)
    return _frame(
        title, Markup('{}<main id="main" tabindex="-1"><h1>{}</h1>{}{}</main>').format(menu, title, told, body)
    )


def bare_page(title: str, body: Markup) -> Markup:
    """A page without navigation."""
    return _frame(title, Markup('<main id="main" class="bare"><h1>{}</h1>{}</main>').format(title, body))


def _frame(title: str, body: Markup) -> Markup:
    return Markup(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{} · Penstock</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta name="htmx-config" content=\'{{"includeIndicatorCSS": false, "history": false}}\'>'
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="/static/pico.min.css">'
        '<link rel="stylesheet" href="/static/uPlot.min.css"><link rel="stylesheet" href="/static/console.css">'
        '<script src="/static/htmx.min.js" defer></script><script src="/static/uPlot.iife.min.js" defer></script>'
        '<script src="/static/console.js" type="module"></script></head>'
        '<body><a class="skip" href="#main">Skip to the content</a>{}</body></html>'
    ).format(title, body)
