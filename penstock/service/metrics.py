"""Figures as text that Prometheus and its relatives read: the 0.0.4 text format and OpenMetrics 1.0.

Pure. A figure's name may carry labels, ``name{label="value"}``; a family is what stands before the brace. A name that
ends in ``_total`` is a counter, any other a gauge; other characters than ``A-Z a-z 0-9 _ :`` in a family become ``_``,
so that one odd name never spoils the page. Families come sorted, each once, as both formats demand, and with what they
mean where that is known (``penstock/service/meanings.py``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from penstock.service.meanings import meaning_of

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ODD: Final = re.compile(r"[^A-Za-z0-9_:]")
_COUNTER: Final = "_total"


def expose(figures: Mapping[str, float], *, openmetrics: bool = False) -> str:
    """The page of all figures, by name."""
    families: dict[str, list[tuple[str, float]]] = {}
    for name, value in figures.items():
        family, brace, labels = name.partition("{")
        families.setdefault(_legal(family), []).append((brace + labels, value))
    lines: list[str] = []
    for family in sorted(families):
        counter = family.endswith(_COUNTER)
        titled = family.removesuffix(_COUNTER) if openmetrics and counter else family
        meaning = meaning_of(family)
        if meaning:
            lines.append(f"# HELP {titled} {meaning}")
        lines.append(f"# TYPE {titled} {'counter' if counter else 'gauge'}")
        lines += [f"{family}{labels} {_number(value)}" for labels, value in sorted(families[family])]
    if openmetrics:
        lines.append("# EOF")
    return "".join([line + "\n" for line in lines])


def with_label(family: str, label: str, value: str) -> str:
    """The name of a figure with one label."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'{family}{{{label}="{escaped}"}}'


def label_of(name: str, family: str, label: str) -> str | None:
    """What such a figure's label says; ``None`` where the name is another figure's."""
    before = f'{family}{{{label}="'
    if not name.startswith(before):
        return None
    return re.sub(r"\\(.)", r"\1", name.removeprefix(before).removesuffix('"}'))


def _legal(family: str) -> str:
    legal = _ODD.sub("_", family)
    return legal if legal and not legal[0].isdigit() else f"_{legal}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(float(value))
