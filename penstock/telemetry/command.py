"""``penstock telemetry``: the jobs at a terminal, and the same as a program for ``spark-submit``.

It loads Spark only when the job starts, so that ``--help`` is quick and the command works without the extra.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from penstock.blocking.routes import Routes
from penstock.cli.display import json_option, print_json, print_rows
from penstock.cli.root import ReportingGroup
from penstock.errors import TimedOut, TopicNotFound, Unavailable
from penstock.protocol.addresses import SERVERS
from penstock.telemetry import job
from penstock.telemetry.catalog import JOBS, WINDOWS
from penstock.telemetry.job import Batch, JobOptions, OnBatch, QueryOptions
from penstock.telemetry.job_commands import LIGHT_HELP, Jobs, add_jobs, rounded
from penstock.telemetry.progress import working
from penstock.telemetry.windows import WATERMARK, WINDOW, WINDOW_COLUMNS

SHOWN = ("window_start", "device", "metric", "count", "mean", "min", "max", "refused")


@click.group()
def telemetry() -> None:
    """Ready-made Spark jobs over telemetry topics."""


@telemetry.command("list")
@json_option
def list_jobs(as_json: bool) -> None:
    """List the jobs that `penstock telemetry run NAME` runs."""
    about = "windows with count, mean, min and max; the one without a NAME"
    rows = [{"name": WINDOWS, "about": about, "columns": list(WINDOW_COLUMNS)}]
    rows += [{"name": job.name, "about": job.about, "columns": list(job.columns)} for job in JOBS]
    print_rows(rows, ("name", "about"), as_json=as_json)


@telemetry.group(cls=Jobs)
def run() -> None:
    """Run a job; without a NAME that of windows."""


@run.command(WINDOWS)
@click.option("--server", metavar="HOST:PORT", help="Name server; by default the one of `penstock --server`.")
@click.option("--topic", default="telemetry", show_default=True, help="Broker topic; several with commas.")
@click.option("--window", default=WINDOW, show_default=True, help="Length of a window: 10s, 1m, 1h.")
@click.option("--watermark", default=WATERMARK, show_default=True, help="How late a reading may come.")
@click.option("--every", default="1s", show_default=True, help="Pause between batches.")
@click.option("--starting-offsets", default="earliest", show_default=True, help="earliest, latest or JSON per queue.")
@click.option("--once", "--available-now", "once", is_flag=True, help="Read the stored messages and end.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Keep finished windows there (parquet).")
@click.option("--checkpoint", type=click.Path(file_okay=False, path_type=Path), help="Folder of the job's progress.")
@click.option("--rows-per-batch", default=1_000_000, show_default=True, type=click.IntRange(min=1), help="At most.")
@click.option("--accept-data-loss", is_flag=True, help="Continue if retention has removed unread messages.")
@click.option("--light", is_flag=True, help=LIGHT_HELP)
@json_option
@click.pass_context
def run_windows(
    context: click.Context, /, server: str | None, as_json: bool, accept_data_loss: bool, **given: Any
) -> None:
    """Count, mean, min and max per device and metric, in windows of event time.

    Devices publish to telemetry/<device>/<metric> a number, {"value": 21.5, "time": <ms>} or an object of numbers.
    Payloads that are none of these are counted as refused, and kept in OUT/refused.

    \b
    Examples:
      penstock telemetry run
      penstock telemetry run --window 1m --out /data/telemetry
      penstock telemetry run --once --json | jq '.rows[] | select(.max > 80)'
      penstock telemetry list           other jobs: penstock telemetry run gaps
    """
    servers = server or context.obj or SERVERS
    options = JobOptions(servers=servers, fail_on_data_loss=not accept_data_loss, **given)
    look_for_topics(options)
    run_job(options, printer(as_json))


def look_for_topics(options: QueryOptions) -> None:
    """Says which topics are not there, before Spark takes its time to start. For a job that ends, raises
    ``TopicNotFound`` where it would read nothing, ``Unavailable`` and ``TimedOut`` where no name server answers."""
    wanted = [topic.strip() for topic in options.topic.split(",") if topic.strip()]
    try:
        with Routes(options.servers) as routes:
            names = routes.topic_names()
            known = {*names.topics, *names.absent}
    except (Unavailable, TimedOut) as error:
        if options.once:
            raise
        click.echo(f"waiting: {error}", err=True)
        return
    missing = [topic for topic in wanted if topic not in known]
    if options.once and missing == wanted:
        raise TopicNotFound(f"there is no topic {', '.join(missing)}", hint="`penstock topic list` shows all")
    if missing:
        click.echo(f"{'there is no' if options.once else 'waiting for'} topic {', '.join(missing)}", err=True)


def run_job(options: JobOptions, on_batch: OnBatch) -> None:
    """Runs the job in a Spark of its own."""
    with working("penstock-telemetry", light=options.light) as (spark, line):
        line.update(f"reading {options.topic}")
        job.run(options, spark, on_batch)


def printer(as_json: bool) -> OnBatch:
    """What prints a batch: one JSON line, or a table under a line that says which batch it is."""

    def show(batch: Batch) -> None:
        if as_json:
            print_json(batch)
            return
        bad = f", {batch['refused']} payloads refused" if batch["refused"] else ""
        click.echo(f"batch {batch['batch']}: {len(batch['rows'])} windows changed{bad}")
        print_rows([rounded(row) for row in batch["rows"]], SHOWN, as_json=False, empty="no reading")

    return show


add_jobs(run, look_for_topics)


@click.group(cls=ReportingGroup, context_settings={"help_option_names": ["-h", "--help"]})
def program() -> None:
    """The jobs as a program of their own."""


program.add_command(run)
