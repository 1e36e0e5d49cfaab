"""``penstock consume``: prints messages of a topic, as a reader of its own or as a member of a group."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Final

import click

from penstock.blocking import Consumer, Reader
from penstock.cli.display import body_text, incomplete_option, json_option, line_text, named, print_json, shown
from penstock.cli.durations import shown_time, start_of
from penstock.client.arguments import Start
from penstock.client.message_tasks import offset_id
from penstock.protocol.received import ReceivedMessage

TAIL_S: Final = 0.2
"""Seconds that `tail` waits for messages of all its topics together."""


@click.command()
@click.argument("topic")
@click.option(
    "-g", "--group", default="", callback=named, help="Read as a member of this group and commit printed messages."
)
@click.option(
    "-o",
    "--offset",
    "start",
    callback=lambda _context, _parameter, text: None if text is None else start_of(text, "--offset"),
    metavar="PLACE",
    help="Where to begin: earliest, latest, or a time (2026-12-01T08:00).  [earliest; with a group: its commit]",
    show_default=False,
)
@click.option("-n", "--count", type=click.IntRange(1), help="End after this number of messages.")
@click.option("-e", "--end", "until_end", is_flag=True, help="End when all that is there now was printed.")
@click.option(
    "-q", "--queue", "queues", type=click.IntRange(0), multiple=True, help="Only this queue; may be repeated."
)
@click.option("-t", "--tag", "tags", multiple=True, help="Only messages with this tag; may be repeated.")
@click.option(
    "-f", "--filter", "filter", default="", help="Only messages that this selector wants: \"level > 5 AND kind = 'x'\"."
)
@click.option("--raw", is_flag=True, help="Bodies only, byte for byte, each with a newline.")
@incomplete_option
@json_option
@click.pass_obj
def consume(
    server: str,
    topic: str,
    group: str,
    start: Start | None,
    count: int | None,
    until_end: bool,
    queues: tuple[int, ...],
    tags: tuple[str, ...],
    filter: str,
    raw: bool,
    allow_incomplete: bool,
    as_json: bool,
) -> None:
    """Print the messages of TOPIC, and wait for more until Ctrl-C.

    \b
    Examples:
      penstock consume orders                     all, then what comes
      penstock consume orders -o latest -n 10     the next ten
      penstock consume orders -o 2026-12-01T08:00  messages stored at or after that time
      penstock consume orders -e --json | jq .body
      penstock consume orders -g billing          as a member of a group
      penstock consume orders -f "total > 100.0"  what a filter wants
    """
    if group and (queues or until_end):
        raise click.UsageError(
            "a group's broker decides which queues are read: --queue and --end do not go with --group"
        )
    if group:
        batch_max = 500 if count is None else 1  # what is not printed must not be committed
        with Consumer(
            group, topic, servers=server, start=start or "earliest", tags=tags, filter=filter, batch_max=batch_max
        ) as consumer:
            _print_group(consumer, count, raw, as_json)
        return
    with Reader(
        topic,
        queues=queues or None,
        servers=server,
        start=start or "earliest",
        until_end=until_end,
        tags=tags,
        filter=filter,
        allow_incomplete=allow_incomplete,
    ) as reader:
        for at, message in enumerate(reader.messages(), 1):
            show_message(message, raw, as_json)
            if at == count:
                return


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("-n", "--count", type=click.IntRange(1), help="End after this number of messages.")
@incomplete_option
@json_option
@click.pass_obj
def tail(server: str, topics: tuple[str, ...], count: int | None, allow_incomplete: bool, as_json: bool) -> None:
    """Print the messages of TOPICs as they are stored, each with its time and topic, until Ctrl-C.

    \b
    Examples:
      penstock tail orders plant
      penstock tail orders --json | jq .body
    """
    printed = 0
    with contextlib.ExitStack() as opened:
        readers = [
            opened.enter_context(Reader(one, servers=server, start="latest", allow_incomplete=allow_incomplete))
            for one in topics
        ]
        while True:
            for reader in readers:
                for message in reader.poll(TAIL_S / len(readers)):
                    show_message(message, False, as_json, when=shown_time(message.stored_ms))
                    printed += 1
                    if printed == count:
                        return
                sys.stdout.flush()


def _print_group(consumer: Consumer, count: int | None, raw: bool, as_json: bool) -> None:
    """Commits every batch when it was printed."""
    printed = 0
    for batch in consumer:
        for message in batch:
            show_message(message, raw, as_json)
        sys.stdout.flush()
        consumer.commit()
        printed += len(batch)
        if printed == count:
            return


def show_message(message: ReceivedMessage, raw: bool, as_json: bool, when: str = "") -> None:
    """Prints one message as the options say. ``when``: to stand before it, with the message's id."""
    if raw:
        sys.stdout.buffer.write(message.body + b"\n")
        return
    body, encoding = body_text(message.body)
    if not as_json:
        about = [when] if when else []
        about.append(f"{message.queue.name}/{message.offset}")
        about += [f"id={shown(message.id)}"] if when and message.id else []
        about += [f"{name}={shown(value)}" for name, value in _marks(message).items()]
        click.echo(f"{' '.join(about)}  {line_text(message.body)}")
        return
    key, key_encoding = body_text(message.key_bytes)
    row: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.queue.broker,
        "queue": message.queue.number,
        "offset": message.offset,
        "offset_id": offset_id(message),
        "key": key,
        "key_encoding": key_encoding,
        "tag": message.tag,
        "mqtt_topic": message.mqtt_topic,
        "id": message.id,
        "born_ms": message.born_ms,
        "stored_ms": message.stored_ms,
        "properties": dict(message.properties),
        "encoding": encoding,
        "body": body,
    }
    print_json(row)


def _marks(message: ReceivedMessage) -> dict[str, str]:
    marks = {
        "mqtt": message.mqtt_topic,
        "key": line_text(message.key_bytes) if message.key != message.mqtt_topic else "",
        "tag": message.tag,
    }
    return {name: value for name, value in marks.items() if value}
