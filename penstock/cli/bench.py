"""``penstock bench``: a first figure of this cluster as one program on this machine sees it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, Final

import click

from penstock.blocking import Producer, Reader
from penstock.blocking.admin import Admin
from penstock.cli.display import json_option, print_rows
from penstock.protocol.message import IS_COMPILED, Message
from penstock.world import Clock, RealClock, new_rng

_COLUMNS: Final = ("what", "messages", "seconds", "per_s", "p50_ms", "p99_ms")
_BATCH: Final = 500
_PARTS: Final = 3


@click.command()
@click.option("--seconds", default=6.0, show_default=True, type=click.FloatRange(0.3, 600), help="How long in all.")
@click.option("--size", default=200, show_default=True, type=click.IntRange(1, 65536), help="Bytes of a message.")
@json_option
@click.pass_obj
def bench(server: str, seconds: float, size: int, as_json: bool) -> None:
    """Measure how fast one client stores and reads messages, in a topic of its own, for some seconds.

    One client in one Python process measures, with one request at a time, so the figures are a lower bound of what the
    servers can do and an upper bound of what a single send takes. The topic is deleted at the end.

    \b
    Examples:
      penstock bench
      penstock bench --size 1000 --seconds 20 --json
    """
    clock, topic = RealClock(), f"bench-{new_rng().getrandbits(32):08x}"
    with Admin(server) as admin:
        admin.create_topic(topic)
        try:
            rows = _measure(server, topic, clock, seconds / _PARTS, b"x" * size)
        finally:
            admin.delete_topic(topic)
    print_rows(rows, _COLUMNS, as_json=as_json)
    if not as_json:
        client = "compiled" if IS_COMPILED else "not compiled (a C compiler at the install makes it faster)"
        click.echo(
            f"\nOne client on this machine, {client}; {size} bytes a message, acknowledged at the topic's", err=True
        )
        click.echo(
            "level (disk: fsynced). Other programs here share the processor: repeat it, and compare only", err=True
        )
        click.echo(
            "runs on the same machine. Many clients at once reach more: `make bench-native` in a clone.", err=True
        )


def _measure(server: str, topic: str, clock: Clock, part_s: float, body: bytes) -> list[dict[str, Any]]:
    with Producer(servers=server) as producer:
        producer.send(topic, body)  # routes and connections are there from now on
        batch = [Message(topic, body) for _ in range(_BATCH)]
        single = _timed(lambda: producer.send(topic, body), clock, part_s)
        many = _timed(lambda: producer.send_many(batch), clock, part_s)
    stored = 1 + len(single) + len(many) * _BATCH
    rows = [_row("send, one at a time", single, 1), _row(f"send, batches of {_BATCH}", many, _BATCH)]
    return [*rows, _read(server, topic, clock, part_s, stored)]


def _timed(act: Callable[[], object], clock: Clock, part_s: float) -> list[float]:
    """Seconds of each call of ``act``, repeated for ``part_s`` seconds."""
    began, found = clock.monotonic(), list[float]()
    while clock.monotonic() - began < part_s:
        at = clock.monotonic()
        act()
        found.append(clock.monotonic() - at)
    return found


def _row(what: str, took: list[float], each: int) -> dict[str, Any]:
    seconds, count = sum(took), len(took) * each
    row = {"what": what, "messages": count, "seconds": round(seconds, 2), "per_s": round(count / seconds)}
    middle, slow = statistics.median(took), sorted(took)[int(len(took) * 0.99)]
    return row | {"p50_ms": round(middle * 1000, 2), "p99_ms": round(slow * 1000, 2)}


def _read(server: str, topic: str, clock: Clock, part_s: float, stored: int) -> dict[str, Any]:
    """Reads the stored messages, for about ``part_s`` seconds at most."""
    count, began = 0, clock.monotonic()
    with Reader(topic, servers=server, start="earliest") as reader:
        while count < stored and clock.monotonic() - began < part_s:
            count += len(reader.poll(part_s))
    seconds = clock.monotonic() - began
    row = {"what": "read", "messages": count, "seconds": round(seconds, 2), "per_s": round(count / seconds)}
    return row | {"p50_ms": None, "p99_ms": None}
