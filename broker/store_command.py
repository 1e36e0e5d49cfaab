"""``penstock store``: looks into a data folder, for operators. No broker needs to run.

``verify`` and ``dump`` only read; ``repair-index`` needs the folder for itself. Progress goes to stderr.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from broker.state import BrokerState
from broker.store.disk import RealDisk
from broker.store.inspection import Dumped, Report, Step, dump, repair_index, verify
from broker.store.settings import StoreSettings
from penstock.cli.display import ERROR_STATUS, UNANSWERED, body_text, json_option, line_text, print_json
from penstock.errors import InvalidMessage
from penstock.protocol.message import decode_properties
from penstock.world import RealClock
from topicmap.queues import SYSTEM_PREFIX

T = TypeVar("T")

LOST_SHOWN_MAX: Final = 20
BODY_SHOWN_MAX: Final = 200

data_option = click.option(
    "-d",
    "--data",
    required=True,
    envvar="PENSTOCK_BROKER_DATA",
    show_envvar=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The broker's data folder: the one that holds log/.",
)


@click.group(name="store")
def store_group() -> None:
    """Look into a broker's data folder: verify it, print it, make its index again."""


@contextmanager
def progress(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda done, total: None
        return
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@store_group.command("verify")
@data_option
@json_option
@click.pass_context
def verify_command(context: click.Context, data: Path, as_json: bool) -> None:
    """Read everything and check it. The exit status is 1 if something is damaged, 2 for an error.

    \b
    Examples:
      penstock store verify -d penstock-data
      penstock store verify -d penstock-data --json | jq .damage
    """
    context.meta[ERROR_STATUS] = UNANSWERED
    with progress("verifying", quiet=as_json) as show:
        report = finish(verify(RealDisk(data, is_read_only=True)), show)
    if as_json:
        print_json(_row(report))
    else:
        for line in _lines(report):
            click.echo(line)
    if not report.sound:
        context.exit(1)


def finish(steps: Generator[Step, None, T], show: Callable[[int, int], None]) -> T:
    """Goes through the steps of a long piece of work, showing each; returns what it made."""
    while True:
        try:
            show(*next(steps))
        except StopIteration as end:
            made: T = end.value
            return made


def _row(report: Report) -> dict[str, Any]:
    return {
        "sound": report.sound,
        "start": report.start,
        "end": report.end,
        "records": report.records,
        "damage": [list(stretch) for stretch in report.damage],
        "missing": [list(stretch) for stretch in report.missing],
        "malformed": report.malformed,
        "missing_bytes": report.missing_bytes,
        "torn_bytes": report.torn_bytes,
        "bad_files": report.bad_files,
        "stray_entries": report.stray_entries,
        "lost": [list(one) for one in report.lost],
    }


def _lines(report: Report) -> Iterator[str]:
    yield f"log      positions {report.start:,} to {report.end:,}, {report.records:,} records"
    for first, last in report.missing:
        yield f"missing  positions {first:,} to {last:,} are in no file of log/: messages there are lost"
    for first, last in sorted({*report.damage} - {*report.missing}):
        yield f"damage   positions {first:,} to {last:,} fail their checksum: never served, kept as they are"
    for queue, offset in report.lost[:LOST_SHOWN_MAX]:
        yield f"lost     {queue} offset {offset:,}"
    if len(report.lost) > LOST_SHOWN_MAX:
        yield f"lost     and {len(report.lost) - LOST_SHOWN_MAX:,} more: --json names them all"
    for position in report.malformed:
        yield f"damage   the frame at {position:,} holds no well-formed record"
    if report.missing_bytes:
        yield f"lost     {report.missing_bytes:,} bytes behind the end were on the disk when a checkpoint was written"
    if report.torn_bytes:
        yield f"tail     {report.torn_bytes:,} bytes of an unfinished write behind the end; the next start cuts them"
    for path in report.bad_files:
        yield f"index    {path} is damaged; the next start makes it again"
    if report.stray_entries:
        yield f"index    {report.stray_entries:,} entries point to no record: run `penstock store repair-index`"
    yield "sound" if report.sound else "NOT SOUND"


@store_group.command("dump")
@data_option
@click.option("--from", "since", type=click.IntRange(0), default=0, help="Begin at this position of the log.")
@click.option("-n", "--count", type=click.IntRange(1), help="Number of records after which to end.")
@click.option("-t", "--topic", help="Only this topic.")
@click.option("--system", is_flag=True, help="The broker's own records too.")
@json_option
def dump_command(data: Path, since: int, count: int | None, topic: str | None, system: bool, as_json: bool) -> None:
    """Print the records of the log in their order.

    \b
    Examples:
      penstock store dump -d penstock-data -n 10
      penstock store dump -d penstock-data -t orders --json | jq .body
      penstock store dump -d penstock-data --from 4096 --system
    """
    records = (
        one
        for one in dump(RealDisk(data, is_read_only=True), since)
        if (system or not one.topic.startswith(SYSTEM_PREFIX)) and topic in (None, one.topic)
    )
    for one in islice(records, count):
        if as_json:
            print_json(_record_row(one))
        else:
            text = line_text(one.body, BODY_SHOWN_MAX)
            click.echo(f"{one.position:>16,}  {one.topic}:{one.queue_id}  {one.offset:>8,}  {text}")


def _record_row(one: Dumped) -> dict[str, Any]:
    body, encoding = body_text(one.body)
    try:
        properties: Any = decode_properties(one.properties)
    except InvalidMessage:
        properties = None
    return {
        "position": one.position,
        "size": one.size,
        "topic": one.topic,
        "queue": one.queue_id,
        "offset": one.offset,
        "flag": one.flag,
        "stored_ms": one.stored_ms,
        "properties": properties,
        "body": body,
        "encoding": encoding,
    }


@store_group.command("repair-index")
@data_option
@json_option
@click.pass_context
def repair_command(context: click.Context, data: Path, as_json: bool) -> None:
    """Remove everything that is derived from the log and make it again. Stop the broker first.

    The exit status is 1 if the log itself is damaged; that is reported and kept as it is. It is 2 for an error.

    \b
    Example:
      penstock store repair-index -d penstock-data
    """
    context.meta[ERROR_STATUS] = UNANSWERED
    with progress("reading the log", quiet=as_json) as show:
        damage = repair_index(RealDisk(data), StoreSettings(), BrokerState(), RealClock().wall_ms(), show)
    if as_json:
        print_json({"repaired": True, "damage": [list(stretch) for stretch in damage]})
    else:
        click.echo("the index was made again")
        for first, last in damage:
            click.echo(f"damage   positions {first:,} to {last:,} fail their checksum: never served, kept as they are")
    if damage:
        context.exit(1)
