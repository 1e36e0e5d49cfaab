"""``penstock sql``: a query over the history of topics, printed or written to a file.

Spark is loaded only when the name servers have said which topics there are.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any, Final, TextIO

import click

from penstock.blocking.routes import Routes
from penstock.cli.display import json_option, print_rows
from penstock.errors import InvalidConfig

ROWS_SHOWN: Final = 100
_PLACES: Final = 6
FORMATS: Final = ("csv", "json", "parquet")


@click.command()
@click.argument("query")
@click.option("--csv", "as_csv", is_flag=True, help="Rows as CSV, with a line of names first.")
@json_option
@click.option(
    "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write FILE.csv, FILE.json or FILE.parquet."
)
@click.option("-n", "--limit", type=click.IntRange(1), help=f"Most rows.  [a table: {ROWS_SHOWN}; else: all]")
@click.pass_obj
def sql(server: str, query: str, as_csv: bool, as_json: bool, out: Path | None, limit: int | None) -> None:
    """Answer QUERY, in Spark's SQL, over all that topics hold. Each topic is a table.

    Columns: device, metric, time, value and the other fields of JSON payloads; key, mqtt_topic, client_id, queue,
    offset, stored, payload. Names with other characters than letters, digits and _ stand in `backticks`. The result
    must fit into memory.

    \b
    Examples:
      penstock sql "select device, max(value) from telemetry group by device"
      penstock sql "select * from telemetry where stored > '2026-12-01' limit 10"
      penstock sql "select * from orders" --json | jq .total
      penstock sql "select * from telemetry" --out telemetry.parquet
    """
    kind = format_of(as_csv, as_json, out)
    with Routes(server) as routes:
        topics = tuple(routes.topic_names().topics)
    from penstock.spark.causes import plain_errors
    from penstock.telemetry.progress import working

    shown = limit or (ROWS_SHOWN if kind == "table" else None)
    with working("penstock-sql") as (spark, line):
        from penstock.telemetry.history import answer  # imports pyspark, which session() has checked

        line.update("reading")
        found = answer(query, spark, server, topics)
        with plain_errors():
            rows = (found if shown is None else found.limit(shown + (limit is None))).toArrow()
    write(rows, kind, out, shown)


def format_of(as_csv: bool, as_json: bool, out: Path | None) -> str:
    """``table``, ``csv``, ``json`` or ``parquet``. Raises ``InvalidConfig`` for a file of no known kind."""
    if out is None:
        return "csv" if as_csv else "json" if as_json else "table"
    kind = out.suffix[1:].lower()
    if kind not in FORMATS:
        raise InvalidConfig(f"{out} is no file of a known kind", hint="its name ends in .csv, .json or .parquet")
    return kind


def write(rows: Any, kind: str, out: Path | None, shown: int | None) -> None:
    """Prints rows or writes them to a file."""
    if kind == "table":
        print_table(rows, shown)
        return
    if out is None:
        write_text(rows, kind, sys.stdout)
        return
    if kind == "parquet":
        from pyarrow import parquet

        parquet.write_table(rows, out)
    else:
        with out.open("w", encoding="utf-8", newline="") as file:
            write_text(rows, kind, file)
    click.echo(f"{rows.num_rows:,} rows in {out}", err=True)


def write_text(rows: Any, kind: str, file: TextIO) -> None:
    """Rows as CSV or as one JSON object per line."""
    from penstock.telemetry.running import told

    writer = csv.writer(file, lineterminator="\n")
    if kind == "csv":
        writer.writerow(rows.column_names)
    for batch in rows.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            if kind == "csv":
                writer.writerow([_cell(value) for value in told(row).values()])
            else:
                file.write(json.dumps(told(row), ensure_ascii=False, separators=(",", ":"), default=str) + "\n")


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else value


def print_table(rows: Any, shown: int | None) -> None:
    """Rows for a person; says where there are more than are shown."""
    from penstock.telemetry.running import told

    found = [told(row) for row in rows.slice(0, shown).to_pylist()]
    print_rows(
        [{name: _rounded(value) for name, value in row.items()} for row in found], rows.column_names, as_json=False
    )
    if shown is not None and rows.num_rows > shown:
        click.echo(f"(the first {shown:,} rows; --limit shows more, --out keeps all)", err=True)


def _rounded(value: Any) -> Any:
    return round(value, _PLACES) if isinstance(value, float) else value
