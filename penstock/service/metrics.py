"""Figures as text that Prometheus and its relatives read: the 0.0.4 text format and OpenMetrics 1.0.

Pure. A figure's name may carry labels, ``name{label="value"}``; a family is the part before the brace. A name that
ends in ``_total`` is a counter, ``_bucket`` with ``_sum`` and ``_count`` a histogram, any other a gauge; other
characters than ``A-Z a-z 0-9 _ :`` in a family become ``_``, so that one odd name never spoils the page. Families come
sorted, each once, as both formats demand, with their meanings if these are known (``penstock/service/meanings.py``).
Why this is our own: decision 95.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from penstock.service.histogram import ExemplifiedCount
from penstock.service.meanings import meaning_of

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ODD: Final = re.compile(r"[^A-Za-z0-9_:]")
_BUCKET: Final = "_bucket"
_EXACT: Final = 1 << 53
PART_SERIES: Final = 2_000
"""Maximum number of series in one part."""


def expose(figures: Mapping[str, float], *, openmetrics: bool = False) -> str:
    """The page of all figures, by name."""
    return "".join(expose_in_parts(figures, openmetrics=openmetrics))


def expose_in_parts(figures: Mapping[str, float], *, openmetrics: bool = False) -> Iterator[str]:
    """The same in parts, each made in a few milliseconds at most: an event loop can run other tasks between them. Parts
    may be empty."""
    families: dict[str, list[tuple[str, float]]] = {}
    rows_of: dict[str, list[tuple[str, float]]] = {}  # by the name as it was given
    for number, (name, value) in enumerate(figures.items()):
        family, brace, labels = name.partition("{")
        rows = rows_of.get(family)
        if rows is None:
            rows = rows_of[family] = families.setdefault(_legal(family), [])
        rows.append((brace + labels, value))
        if number % PART_SERIES == 0:
            yield ""
    for family in sorted(families):
        rows = families[family]
        yield _heading(family, families, openmetrics)
        if not family.endswith(_BUCKET):  # whose order is that of their bounds
            rows.sort()
        for start in range(0, len(rows), PART_SERIES):
            some = rows[start : start + PART_SERIES]
            if openmetrics and family.endswith(_BUCKET):
                yield "".join([f"{family}{labels} {_number(value)}{_exemplar(value)}\n" for labels, value in some])
            else:
                yield "".join([f"{family}{labels} {_number(value)}\n" for labels, value in some])
    if openmetrics:
        yield "# EOF\n"


def _heading(family: str, families: Collection[str], openmetrics: bool) -> str:
    """The comment lines before the samples of a family; empty for ``_sum`` and ``_count`` of a histogram."""
    base, _, part = family.rpartition("_")
    kind, titled = "gauge", family
    if part in ("bucket", "count", "sum") and base + _BUCKET in families:
        if part != "bucket":
            return ""
        kind, titled = "histogram", base
    elif part == "total":
        kind, titled = "counter", base if openmetrics else family
    meaning = meaning_of(base if kind == "histogram" else family)
    return (f"# HELP {titled} {meaning}\n" if meaning else "") + f"# TYPE {titled} {kind}\n"


def with_label(family: str, label: str, value: str) -> str:
    """The name of a figure with one label."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'{family}{{{label}="{escaped}"}}'


def label_of(name: str, family: str, label: str) -> str | None:
    """The value of such a figure's label; ``None`` for another figure's name."""
    before = f'{family}{{{label}="'
    if not name.startswith(before):
        return None
    return re.sub(r"\\(.)", r"\1", name.removeprefix(before).removesuffix('"}'))


def _legal(family: str) -> str:
    legal = _ODD.sub("_", family)
    return legal if legal and not legal[0].isdigit() else f"_{legal}"


def _exemplar(value: float) -> str:
    """The text of OpenMetrics behind the count of a bucket that has an exemplar."""
    if not isinstance(value, ExemplifiedCount):
        return ""
    return f' # {{trace_id="{value.exemplar.trace_id}"}} {_number(value.exemplar.seconds)}'


def _number(value: float) -> str:
    if -_EXACT < value < _EXACT:
        return str(int(value)) if value == int(value) else repr(float(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
