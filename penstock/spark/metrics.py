"""Figures of a session's streams as a page for Prometheus: rows, batches and lag per queue of each running query.

Spark's own page shows rates, rows and the bytes that Python workers passed (its tab SQL); it lacks lag, which is here.
The page is served from the driver by a thread that ends with the program. It answers GET of ``/metrics`` and nothing
else, and only to this machine unless another address is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from penstock.errors import InvalidConfig
from penstock.spark.progress import LagListener, QueryLag
from penstock.world import in_background

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND: Final = "text/plain; version=0.0.4; charset=utf-8"
PATH: Final = "/metrics"
MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    "penstock_spark_batches_total": ("counter", "Batches with rows that a query has done since the page was started."),
    "penstock_spark_rows_total": ("counter", "Rows of these batches, of all sources of the query."),
    "penstock_spark_rows_per_second": ("gauge", "Rows that the query processed in a second, in its last batch."),
    "penstock_spark_lag": ("gauge", "Offsets of a queue that the query has not read yet."),
    "penstock_spark_offset": ("gauge", "Offset of a queue that the query reads next."),
}


class QueryMetrics:
    """Figures of a session's queries, from a listener's events."""

    def __init__(self) -> None:
        self.listener = LagListener(self._heard)
        self._batches: dict[str, int] = {}
        self._rows: dict[str, int] = {}

    def _heard(self, lag: QueryLag) -> None:
        if lag.rows:
            self._batches[lag.query] = self._batches.get(lag.query, 0) + 1
            self._rows[lag.query] = self._rows.get(lag.query, 0) + lag.rows

    def text(self) -> str:
        """The page."""
        families: dict[str, list[str]] = {name: [] for name in MEANINGS}
        for lag in sorted(self.listener.queries.values(), key=lambda one: (one.name, one.query)):
            for name, labels, value in self._figures(lag):
                told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
                families[name].append(f"{name}{{{told}}} {value:g}" if value % 1 else f"{name}{{{told}}} {int(value)}")
        lines: list[str] = []
        for name, samples in families.items():
            kind, meaning = MEANINGS[name]
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *samples] if samples else []
        return "".join(f"{line}\n" for line in lines)

    def _figures(self, lag: QueryLag) -> Iterator[tuple[str, dict[str, str], float]]:
        query = {"query": lag.name or lag.query}
        yield "penstock_spark_batches_total", query, self._batches.get(lag.query, 0)
        yield "penstock_spark_rows_total", query, self._rows.get(lag.query, 0)
        yield "penstock_spark_rows_per_second", query, lag.rows_per_s
        for one in lag.queues:
            queue = query | {"topic": one.topic, "broker": one.broker, "queue": str(one.queue)}
            yield "penstock_spark_lag", queue, one.lag
            yield "penstock_spark_offset", queue, one.offset


class MetricsPage:
    """The page of a session's streams, served until it is stopped.

    Attributes:
        address: where it is, ``host:port``.
    """

    def __init__(self, spark: SparkSession, host: str, port: int) -> None:
        self.metrics = QueryMetrics()
        self._spark = spark
        try:
            self._server = _Server((host, port), _Page)
        except OSError as error:
            raise InvalidConfig(f"figures cannot be served at {host}:{port}: {error.strerror or error}") from None
        self._server.metrics = self.metrics
        self.address = f"{host}:{self._server.server_address[1]}"
        spark.streams.addListener(self.metrics.listener)
        in_background(self._server.serve_forever)

    def stop(self) -> None:
        """Ends the page; the queries run on."""
        self._spark.streams.removeListener(self.metrics.listener)
        self._server.shutdown()
        self._server.server_close()


def serve_metrics(spark: SparkSession, port: int = 0, host: str = "127.0.0.1") -> MetricsPage:
    """Serves figures of all streams of a session at ``http://host:port/metrics``.

    Args:
        spark: the session.
        port: 0 for a free one, which the result's ``address`` names.
        host: this machine alone by default; ``0.0.0.0`` where a Prometheus on another machine asks.

    Raises:
        InvalidConfig: the port cannot be had.
    """
    return MetricsPage(spark, host, port)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    metrics: QueryMetrics


class _Page(BaseHTTPRequestHandler):
    timeout = 10

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        found = self.path.partition("?")[0] == PATH
        body = (self.server.metrics.text() if found else f"there is {PATH}\n").encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", KIND)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: a scrape comes every few seconds."""
