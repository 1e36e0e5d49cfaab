"""What the filter index costs with 100,000 filters: to add, to ask, and when filters come and go meanwhile."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from topicmap.filters import RARE_SHAPES_MAX, SHAPES_MAX, FilterIndex

FILTERS: Final = 100_000
NAMES: Final = 20_000


def _hostile() -> list[str]:
    """As many shapes of one depth as a broker lets in; none of them matches what is asked."""
    numbers = range(SHAPES_MAX + RARE_SHAPES_MAX)
    return ["/".join("+" if number >> place & 1 else "a" for place in range(16)) + "/z" for number in numbers]


WORKLOADS: Final[tuple[tuple[str, Callable[[], list[str]], str], ...]] = (
    ("exact names", lambda: [f"devices/d{number}/cmd/set" for number in range(FILTERS)], "devices/d{}/cmd/set"),
    (
        "one wildcard per device",
        lambda: [f"devices/d{number}/+/set" for number in range(FILTERS)],
        "devices/d{}/cmd/set",
    ),
    (
        "mixed",
        lambda: [
            pattern.format(number)
            for number in range(FILTERS // 4)
            for pattern in ("devices/d{}/cmd/set", "devices/d{}/#", "devices/d{}/+/set", "devices/+/alarm/x{}/#")
        ],
        "devices/d{}/cmd/set",
    ),
    ("hostile shapes", _hostile, "/".join("a" * 16) + "/{}"),
)


def _timed_ns(work: Iterable[object]) -> float:
    """Processor nanoseconds per step of an iterator that works as it goes."""
    count, start = 0, time.process_time_ns()
    for _ in work:
        count += 1
    return (time.process_time_ns() - start) / max(count, 1)


def run(console: Console) -> None:
    """Measures and prints."""
    table = Table(title=f"filter index, {FILTERS:,} filters", title_justify="left", box=box.SIMPLE_HEAD)
    for title in ("workload", "add ns", "bytes/filter", "match ns", "remembered ns", "hits", "come and go ns"):
        table.add_column(title, justify="left" if title == "workload" else "right")
    for title, make, pattern in WORKLOADS:
        table.add_row(title, *measure(make(), pattern))
    console.print(table)
    console.print("bytes/filter: without the filter's own string. come and go: one subscription more, then gone again.")


def measure(filters: list[str], pattern: str) -> list[str]:
    """Cells of one workload."""
    index = FilterIndex()
    gc.collect()
    add_ns = _timed_ns(map(index.add, filters))
    names = [pattern.format(number) for number in range(NAMES)]
    match_ns = _timed_ns(map(index.match, names))  # every name is new: nothing is remembered of it
    few = names[:1000]
    hits = sum(len(index.match(name)) for _ in range(2) for name in few) / len(few) / 2  # after this all are remembered
    remembered_ns = _timed_ns(index.match(name) for _ in range(20) for name in few)
    passing = [f"devices/passing{number}/#" for number in range(2000)]
    churn_ns = _timed_ns((index.add(filter), index.remove(filter)) for filter in passing)
    figures = [add_ns, _bytes_per_filter(filters), match_ns, remembered_ns]
    return [f"{figure:,.0f}" for figure in figures] + [f"{hits:.1f}", f"{churn_ns:,.0f}"]


def _bytes_per_filter(filters: list[str]) -> float:
    tracemalloc.start()
    index = FilterIndex()
    for filter in filters:
        index.add(filter)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held / len(filters)
