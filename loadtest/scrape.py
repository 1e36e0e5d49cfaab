"""``python -m loadtest scrape``: what a scrape of many series takes, and for how long it keeps the loop from others.

The status pages of a service serve 100,000 series over HTTP; a process of its own asks for them, one scrape after the
other. Beside them a task of the same loop asks for its turn all the time, and notes how late it gets it.
"""

from __future__ import annotations

import http.client
import statistics
import sys
import time
from typing import Final

import trio
from rich.console import Console
from rich.table import Table

from penstock.protocol.addresses import split_address
from penstock.service.histogram import Histogram
from penstock.service.metrics import with_label
from penstock.service.status import serve_status

SERIES: Final = 100_000
SCRAPES: Final = 10
SCRAPE_MS_MOST: Final = 200.0
STALL_MS_MOST: Final = 20.0


def series(count: int) -> dict[str, float]:
    """So many figures as services have them: families with a label, and a histogram."""
    own = Histogram().figures("penstock_sync_seconds")
    found = {
        with_label("penstock_topic_messages_total", "topic", f"t{n}"): n * 3 for n in range((count - len(own)) // 2)
    }
    lags = {with_label("rocketmq_consumer_lag_messages", "group", f"g{n}"): n / 7 for n in range(count - len(found))}
    return dict(list({**own, **found, **lags}.items())[:count])


def fetch(address: str, scrapes: int, accept: str) -> None:
    """Scrapes, and prints the seconds of each; runs in a process of its own."""
    host, port = split_address(address)
    for _ in range(scrapes):
        began = time.perf_counter()
        connection = http.client.HTTPConnection(host, port)
        connection.request("GET", "/metrics", headers={"Accept": accept})
        size = len(connection.getresponse().read())
        print(f"{time.perf_counter() - began} {size}", flush=True)


async def measure(count: int, scrapes: int, accept: str) -> tuple[list[float], int, float, float]:
    """Seconds of each scrape, the bytes of a page, the longest stall of the loop in seconds, and the longest of as many
    seconds without a scrape."""
    figures = series(count)

    async def read() -> dict[str, float]:
        await trio.lowlevel.checkpoint()
        return figures

    async def ready() -> list[str]:
        await trio.lowlevel.checkpoint()
        return []

    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve_status, "127.0.0.1", 0, read, ready)
        stalls = Stalls()
        nursery.start_soon(stalls.run)
        command = [sys.executable, "-m", "loadtest.scrape", address, str(scrapes), accept]
        began = trio.current_time()
        done = await trio.run_process(command, capture_stdout=True)
        busy, stalls.longest_s = stalls.longest_s, 0.0
        await trio.sleep(trio.current_time() - began)
        nursery.cancel_scope.cancel()
    rows = [line.split() for line in done.stdout.decode().splitlines()]
    return [float(row[0]) for row in rows], int(rows[0][1]), busy, stalls.longest_s


class Stalls:
    """A task that wants its turn every millisecond. ``longest_s``: the longest that it waited for one beyond that."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            began = time.perf_counter()
            await trio.sleep(0.001)
            self.longest_s = max(self.longest_s, time.perf_counter() - began - 0.001)


def run(console: Console, count: int = SERIES, scrapes: int = SCRAPES) -> int:
    """Measures both formats and prints a table; the status is 0 whatever was reached."""
    table = Table(title=f"{count:,} series, {scrapes} scrapes")
    for name in (
        "format",
        "MB",
        f"median ms (most {SCRAPE_MS_MOST:g})",
        "slowest ms",
        f"stall ms (most {STALL_MS_MOST:g})",
    ):
        table.add_column(name, justify="right")
    table.add_column("stall ms without scrapes", justify="right")
    for name, accept in (("text", "text/plain"), ("OpenMetrics", "application/openmetrics-text")):
        seconds, size, busy, idle = trio.run(measure, count, scrapes, accept)
        middle, slowest = statistics.median(seconds) * 1000, max(seconds) * 1000
        table.add_row(
            name, f"{size / 1e6:.1f}", f"{middle:.0f}", f"{slowest:.0f}", f"{busy * 1000:.1f}", f"{idle * 1000:.1f}"
        )
    console.print(table)
    return 0


if __name__ == "__main__":
    fetch(sys.argv[1], int(sys.argv[2]), sys.argv[3])
