"""``penstock telemetry run NAME`` for the jobs of the catalog: one command each, with the job's options in its help.

Without a name the windows job runs. Spark is loaded only when a job starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from penstock.cli.display import JSON_WANTED, json_option, print_json, print_rows
from penstock.errors import InvalidConfig
from penstock.protocol.addresses import SERVERS
from penstock.spark.versions import installed_release
from penstock.telemetry import catalog, outputs
from penstock.telemetry.catalog import BY_NAME, WINDOWS, Job, Option, job_of
from penstock.telemetry.job import Batch, OnBatch, spark_interval
from penstock.telemetry.progress import Progress, working
from penstock.telemetry.running import RunOptions, outputs_of, run

LIGHT_HELP: Final = "For a few hundred rows a second: Spark starts with less processor time, and runs slower."
_PLACES: Final = 3
_KINDS: Final[Mapping[str, Any]] = {
    "length": click.STRING,
    "count": click.IntRange(min=1),
    "number": click.FloatRange(min=0, min_open=True),
    "text": click.STRING,
    "texts": click.STRING,
}


class Jobs(click.Group):
    """Commands by the names of jobs; without one, that of the windows job."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Puts the name of the windows job in front where no name stands."""
        named = args if args and not args[0].startswith("-") else [WINDOWS, *args]
        return super().parse_args(context, named)

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        """The command of a name. Raises ``InvalidConfig`` where there is no such job."""
        if args[0] not in self.commands:
            context.meta[JSON_WANTED] = "--json" in args
            job_of(args[0])
        return super().resolve_command(context, args)


def add_jobs(group: click.Group, look_for_topics: Callable[[Any], None]) -> None:
    """Adds the catalog's jobs to the group of ``run``."""
    for job in BY_NAME.values():
        group.add_command(command_of(job, look_for_topics))


def command_of(job: Job, look_for_topics: Callable[[Any], None]) -> click.Command:
    """The command that runs a job."""

    def start(context: click.Context, /, server: str | None, as_json: bool, **given: Any) -> None:
        options = options_of(job, server or context.obj or SERVERS, given)
        outputs_of(job, options)  # refuses wrong ones before Spark starts, which takes seconds
        conf = conf_of(options)
        look_for_topics(options)
        run_job(job, options, conf, as_json)

    command = click.Command(
        job.name,
        callback=click.pass_context(start),
        params=[*[_own(one) for one in job.options], *_common(job)],
        help=f"{job.about[0].upper()}{job.about[1:]}.\n\nColumns: {', '.join(job.columns)}.",
        short_help=job.about,
    )
    return json_option(command)  # type: ignore[no-any-return, unused-ignore]


def options_of(job: Job, servers: str, given: dict[str, Any]) -> RunOptions:
    """The options of the flags. Raises ``InvalidConfig`` for an illegal length of time."""
    own = {one.name: given.pop(one.name) for one in job.options}
    for one in job.options:
        if one.kind == "length":
            own[one.name] = spark_interval(own[one.name])
    catalog.check(own)
    return RunOptions(servers=servers, fail_on_data_loss=not given.pop("accept_data_loss"), given=own, **given)


def run_job(job: Job, options: RunOptions, conf: Mapping[str, str], as_json: bool) -> None:
    """Runs a job in a Spark of its own with these settings; reports late readings at the end."""
    show_batch, counts = printer(job, as_json), Counter[str]()

    def on_batch(batch: Batch) -> None:
        counts["rows"] += batch["count"]
        show_batch(batch)

    with working(f"penstock-{job.name}", conf, light=options.light) as (spark, line):
        done = run(job, options, spark, on_batch, lambda progress: line.update(progress.text))
    summary(done)
    if options.once and not counts["rows"]:
        click.echo(without_rows(job), err=True)


def conf_of(options: RunOptions) -> dict[str, str]:
    """Settings of Spark for a run: its packages, what its outputs need, and each ``name=value``. Raises
    ``InvalidConfig``."""
    found = {"spark.jars.packages": ",".join(options.packages)} if options.packages else {}
    for one in options.packages:
        outputs.check_package(one, installed_release())
    if any(outputs.kind_of(one) == "delta" for one in options.out):
        found |= outputs.DELTA
    for one in options.conf:
        name, equals, value = one.partition("=")
        if not equals:
            raise InvalidConfig(f"--conf {one!r} is no setting", hint="write NAME=VALUE")
        found[name] = value
    return found


def summary(done: Progress) -> None:
    """Reports on stderr the readings that the watermark left out."""
    if done.late:
        click.echo(f"{done.late:,} came later than the watermark allows and are left out", err=True)


def without_rows(job: Job) -> str:
    """What a run without a row reports."""
    waits = any(one.name == "watermark" for one in job.options)
    return "no rows" + ("; what is not over yet comes when the watermark has passed its end" if waits else "")


def printer(job: Job, as_json: bool) -> OnBatch:
    """The printer of a batch: one JSON line, or a table under a line with the batch's number."""

    def show_batch(batch: Batch) -> None:
        if as_json:
            print_json(batch)
            return
        click.echo(f"batch {batch['batch']}: {batch['count']:,} rows{'' if batch['rows'] else ' kept'}")
        if batch["rows"]:
            columns = [name for name in batch["rows"][0] if name in job.columns or job.name == "devices"]
            print_rows([rounded(row) for row in batch["rows"]], columns, as_json=False)

    return show_batch


def rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with rounded numbers, for a table."""
    return {name: round(value, _PLACES) if isinstance(value, float) else value for name, value in row.items()}


def _own(option: Option) -> click.Option:
    several = option.kind == "texts"
    return click.Option(
        [f"--{option.name}"],
        default=option.default,
        show_default=bool(option.default),
        multiple=several,
        type=_KINDS[option.kind],
        help=option.about,
    )


def _common(job: Job) -> list[click.Parameter]:
    """The options that every job has."""
    to = f"Where rows go; may be repeated: {outputs.KINDS}."
    return [
        click.Option(["--server"], metavar="HOST:PORT", help="Name server; by default the one of `penstock --server`."),
        click.Option(["--topic"], default="telemetry", show_default=True, help="Broker topic; several with commas."),
        click.Option(["--every"], default="1s", show_default=True, help="Pause between batches."),
        click.Option(
            ["--starting-offsets"], default="earliest", show_default=True, help="earliest, latest or JSON per queue."
        ),
        click.Option(["--once", "--available-now", "once"], is_flag=True, help="Read all stored messages and end."),
        click.Option(["--out"], multiple=True, metavar="PLACE", help=to),
        click.Option(["--checkpoint"], default="", help="Folder of the job's progress; else within --out."),
        click.Option(
            ["--package", "packages"], multiple=True, help="Maven package that Spark fetches; may be repeated."
        ),
        click.Option(["--conf"], multiple=True, metavar="NAME=VALUE", help="Setting of Spark; may be repeated."),
        click.Option(
            ["--rows-per-batch"], default=1_000_000, show_default=True, type=click.IntRange(min=1), help="Maximum."
        ),
        click.Option(["--accept-data-loss"], is_flag=True, help="Continue if retention has removed unread messages."),
        click.Option(["--light"], is_flag=True, help=LIGHT_HELP),
    ]
