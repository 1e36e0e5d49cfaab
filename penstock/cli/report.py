"""``penstock report``: one HTML file about a day of telemetry."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from penstock.blocking.routes import Routes
from penstock.cli.durations import DURATION
from penstock.errors import InvalidConfig, TopicNotFound
from penstock.world import RealClock


@click.command()
@click.argument("day")
@click.option("--topic", default="telemetry", show_default=True, help="Broker topic.")
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="File.  [TOPIC-DAY.html]")
@click.option(
    "--rule", "rules", multiple=True, help="Rule of an alert: 'temperature > 80'; may be repeated.  [* zscore 4]"
)
@click.option(
    "--times",
    default=5.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="How many usual intervals of silence make a gap.",
)
@click.option(
    "--late",
    type=DURATION,
    default="1h",
    show_default=True,
    help="How long after the day's end stored messages still count: 30m, 6h, 7d.",
)
@click.pass_obj
def report(
    server: str, day: str, topic: str, out: Path | None, rules: tuple[str, ...], times: float, late: float
) -> None:
    """Write one HTML file with the rates, devices, values, gaps and alerts of DAY (UTC): 2026-12-01, today, yesterday.

    \b
    Examples:
      penstock report yesterday
      penstock report 2026-12-01 --rule 'temperature > 80' --out site.html
    """
    try:
        from penstock.spark.causes import plain_errors
        from penstock.telemetry.day import RULES, day_of, figures, source_options
        from penstock.telemetry.jobs.alerts import rule_of
        from penstock.telemetry.page import page
        from penstock.telemetry.progress import working
    except ImportError as error:
        raise InvalidConfig(f"Spark is not installed: {error}", hint="`pip install 'penstock[spark]'`") from None

    wanted = day_of(day, RealClock().wall_ms())
    given = source_options(wanted, timedelta(seconds=late))
    read = tuple(rule_of(one) for one in rules) or RULES
    with Routes(server) as routes:
        if topic not in routes.topic_names().topics:
            raise TopicNotFound(f"there is no topic {topic}", hint="`penstock topic list` shows all")
    with working("penstock-report") as (spark, line):
        line.update(f"reading {wanted}")
        rows = spark.read.format("penstock").options(servers=server, subscribe=topic, **given).load()
        with plain_errors():
            found = page(figures(rows, wanted, topic, rules=read, times=times))
    file = out or Path(f"{topic}-{wanted}.html")
    file.write_text(found, encoding="utf-8")
    click.echo(str(file))
