"""``penstock produce``: stores messages from the command line or from standard input."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, BinaryIO

import click

from penstock.blocking import Producer
from penstock.cli.display import json_option, print_json
from penstock.cli.durations import shown_time, time_of
from penstock.client.sending import Receipt
from penstock.client.ways import DelayedReceipt
from penstock.protocol.compression import Compression
from penstock.protocol.message import Message
from penstock.protocol.topic_names import topic_of
from topicmap.names import InvalidName
from topicmap.queues import TopicMap

LINES_PER_BATCH = 1000


@click.command()
@click.argument("topic")
@click.argument("bodies", nargs=-1, metavar="[BODY]...")
@click.option("-k", "--key", default="", help="Messages of one key keep their order.")
@click.option("-t", "--tag", default="", help="One word that consumers can choose by.")
@click.option("-p", "--property", "pairs", multiple=True, metavar="NAME=VALUE", help="A property; may be repeated.")
@click.option("--mqtt-topic", default="", metavar="NAME", help="MQTT name under which devices get it.")
@click.option("--delay", metavar="TIME", help="Deliver it after this time: 5s, 10m, 2h.")
@click.option("--at", metavar="TIME", help="Deliver it at this time: 2026-12-01T08:00 is local, ...Z is UTC.")
@click.option("--compression", type=click.Choice(["zstd", "lz4", "zlib"]), help="Store bodies over 4 KiB compressed.")
@click.option("--lines", is_flag=True, help="Each line of standard input is a message.")
@json_option
@click.pass_obj
def produce(
    server: str,
    topic: str,
    bodies: tuple[str, ...],
    key: str,
    tag: str,
    pairs: tuple[str, ...],
    mqtt_topic: str,
    delay: str | None,
    at: str | None,
    compression: Compression | None,
    lines: bool,
    as_json: bool,
) -> None:
    """Store messages in TOPIC and print where they are.

    Without a BODY all of standard input is one message. For a delayed message the output names its timer;
    `penstock timer cancel` takes it.

    \b
    Examples:
      penstock produce orders '{"id": 1}' -k customer-7
      penstock produce orders --lines < orders.ndjson
      penstock produce plant 22.5 --mqtt-topic plant/d7/setpoint
      penstock produce orders 'remind me' --delay 5s
    """
    if lines and bodies:
        raise click.UsageError("--lines reads standard input; give no BODY")
    if delay and at:
        raise click.UsageError("--delay and --at exclude each other; give one of them")
    properties = dict(_pair(pair) for pair in pairs)
    due = None if at is None else time_of(at, "--at")
    if as_json:  # then stderr is for the error
        logging.getLogger(Producer.__module__).setLevel(logging.ERROR)
    elif mqtt_topic:
        _warn_of_another_topic(topic, mqtt_topic)
    with Producer(servers=server, compression=compression or "") as producer:
        for batch in _batches(bodies, lines, sys.stdin.buffer):
            messages = [
                Message(topic, body, key=key, tag=tag, properties=properties, mqtt_topic=mqtt_topic) for body in batch
            ]
            for receipt in _stored(producer, messages, delay, due):
                _show(receipt, as_json)


def _stored(
    producer: Producer, messages: Sequence[Message], delay: str | None, at: datetime | None
) -> Sequence[Receipt | DelayedReceipt]:
    """Stores messages; a single one fails with its own error."""
    alone = len(messages) == 1
    if delay is not None:
        return [producer.send(messages[0], delay=delay)] if alone else producer.send_many(messages, delay=delay)
    if at is not None:
        return [producer.send(messages[0], at=at)] if alone else producer.send_many(messages, at=at)
    return [producer.send(messages[0])] if alone else producer.send_many(messages)


def _warn_of_another_topic(topic: str, mqtt_topic: str) -> None:
    """The gateways' topic rules are not known here, so this may be as it should be."""
    with contextlib.suppress(InvalidName):  # the producer says so
        usual = TopicMap().place(mqtt_topic).topic
        if usual != topic_of(topic):
            click.echo(
                f"warning: without a topic rule {mqtt_topic} belongs to the topic {usual}, not {topic}: "
                "devices that are sent history do not find it there",
                err=True,
            )


def _batches(bodies: tuple[str, ...], lines: bool, stdin: BinaryIO) -> Iterator[Sequence[bytes]]:
    if bodies:
        yield [body.encode() for body in bodies]
    elif not lines:
        yield [stdin.read()]
    else:
        batch: list[bytes] = []
        for line in stdin:
            batch.append(line.rstrip(b"\r\n"))
            if len(batch) == LINES_PER_BATCH:
                yield batch
                batch = []
        if batch:
            yield batch


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
    return name, value


def _show(receipt: Receipt | DelayedReceipt, as_json: bool) -> None:
    if isinstance(receipt, DelayedReceipt):
        row: dict[str, Any] = {
            "id": receipt.id,
            "topic": receipt.topic,
            "timer": receipt.name,
            "broker": receipt.broker,
            "due": shown_time(receipt.due_ms),
            "status": receipt.status,
        }
        if as_json:
            print_json(row)
        else:
            click.echo(f"{receipt.id}  {receipt.topic} timer {receipt.name}  {receipt.broker}  due {row['due']}")
    elif as_json:
        row = {
            "id": receipt.id,
            "topic": receipt.queue.topic,
            "queue": receipt.queue.number,
            "offset": receipt.offset,
            "broker": receipt.queue.broker,
            "level": receipt.level,
            "status": receipt.status,
        }
        print_json(row)
    else:
        place = f"{receipt.queue.name} offset {receipt.offset}"
        click.echo(f"{receipt.id}  {place}  {receipt.queue.broker}  {receipt.level}")
