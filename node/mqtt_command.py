"""``penstock mqtt``: publishes and subscribes as a device would, to try things by hand.

It lives here and not with the client's commands because it needs the gateway's codec.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import click

from gateway.mqtt.packets import Publish
from node.mqtt_client import MqttClient
from penstock.cli.display import body_text, json_option, line_text, print_json, shown
from penstock.client.retry import BackOff
from penstock.errors import InvalidTopic, PenstockError
from penstock.protocol.addresses import join_address, split_address
from penstock.world import new_rng, pause
from topicmap.names import InvalidName, check_name, legal_filter

MQTT_ADDRESS: Final = "127.0.0.1:1883"
READ_BYTES_MAX: Final = 256 * 1024
_AGAIN: Final = BackOff(first_s=0.5, cap_s=10.0)

_LETTERS: Final = {"help_option_names": ["--help"]}
"""``-h`` is the host, as in mosquitto's tools."""

_Command = Callable[..., Any]


def _connection_options(command: _Command) -> _Command:
    for option in (
        click.option("-P", "--password", envvar="PENSTOCK_MQTT_PASSWORD", help="Password."),
        click.option("-u", "--user", "user_name", help="User name."),
        click.option("-i", "--id", "client_id", default="", help="Client id; the gateway chooses one if left out."),
        click.option(
            "--gateway",
            default=MQTT_ADDRESS,
            envvar="PENSTOCK_MQTT",
            show_envvar=True,
            metavar="HOST:PORT",
            help="Where devices connect.",
        ),
        click.option("-p", "--port", type=click.IntRange(1, 65535), help="The port alone, as mosquitto_pub takes it."),
        click.option("-h", "--host", metavar="HOST", help="The host alone."),
    ):
        command = option(command)

    @functools.wraps(command)
    def at_place(*arguments: Any, gateway: str, host: str | None, port: int | None, **options: Any) -> Any:
        return command(*arguments, gateway=_place(gateway, host, port), **options)

    return at_place


def _place(gateway: str, host: str | None, port: int | None) -> str:
    """The address to connect to: ``--host`` and ``--port`` count for more than ``--gateway``."""
    if host is None and port is None:
        return gateway
    usual_host, usual_port = split_address(gateway)
    return join_address(host or usual_host, port or usual_port)


@click.group()
def mqtt() -> None:
    """Publish and subscribe as a device does."""


@mqtt.command(context_settings=_LETTERS)
@click.argument("name", required=False)
@click.argument("bodies", nargs=-1, metavar="[BODY]...")
@click.option("-t", "--topic", help="NAME, as mosquitto_pub takes it.")
@click.option("-m", "--message", help="BODY, as mosquitto_pub takes it.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=1, help="Quality of service.")
@click.option("-r", "--retain", is_flag=True, help="Also keep it as the name's retained message.")
@click.option("-l", "--lines", is_flag=True, help="Each line of standard input is a message.")
@_connection_options
@json_option
def pub(
    name: str | None,
    bodies: tuple[str, ...],
    topic: str | None,
    message: str | None,
    qos: int,
    retain: bool,
    lines: bool,
    gateway: str,
    as_json: bool,
    **who: Any,
) -> None:
    """Publish to the MQTT topic NAME.

    Without a BODY all of standard input is one message. Short options are those of mosquitto_pub.

    \b
    Examples:
      penstock mqtt pub plant/d7/temperature 22.5
      penstock mqtt pub plant/d7/state on --retain
      sensor-log | penstock mqtt pub plant/d7/log --lines
      penstock mqtt pub -h 127.0.0.1 -p 1883 -t plant/d7/state -m on -q 1
    """
    if (name is None) == (topic is None):
        raise click.UsageError("give the topic once: NAME or -t")
    if message is not None and bodies:
        raise click.UsageError("give the message once: BODY or -m")
    name = name if topic is None else topic
    assert name is not None
    bodies = bodies if message is None else (message,)
    if lines and bodies:
        raise click.UsageError("--lines reads standard input; give no BODY")
    _refuse(name, check_name)
    count, levels = 0, set[str]()
    given = [] if lines else [body.encode() for body in bodies] or [sys.stdin.buffer.read()]
    with MqttClient(gateway, **who) as client:
        for body in _lines(client) if lines else given:
            levels.add(client.publish(name, body, qos=qos, retain=retain))
            count += 1
    level = min(levels - {""}, default="")  # "cache" is less than "disk"
    if as_json:
        print_json({"topic": name, "published": count, "qos": qos, "retain": retain, "level": level})
    else:
        safe = f"acknowledged: on level {level}" if level else "acknowledged" if qos else "QoS 0: not acknowledged"
        click.echo(f"{count} published to {name}, {safe}", err=True)


def _lines(client: MqttClient) -> Iterator[bytes]:
    """Each line of standard input as soon as it is there. The client stays connected between lines."""
    standard_input = sys.stdin.fileno()
    begun = b""
    while True:
        client.wait_until_readable(standard_input)
        chunk = os.read(standard_input, READ_BYTES_MAX)
        *lines, begun = (begun + chunk).split(b"\n")
        yield from [line.rstrip(b"\r") for line in lines]
        if not chunk:
            break
    if begun:
        yield begun.rstrip(b"\r")


def _refuse(text: str, check: Callable[[str], object]) -> None:
    """Raises ``InvalidTopic`` for an illegal name or filter, before a gateway refuses it with fewer words."""
    try:
        check(text)
    except InvalidName as error:
        raise InvalidTopic(f"{text!r}: {error}") from None


@mqtt.command(context_settings=_LETTERS)
@click.argument("filters", nargs=-1, metavar="FILTER...")
@click.option("-t", "--topic", "topics", multiple=True, help="A FILTER, as mosquitto_sub takes it. Repeatable.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=1, help="Highest quality of service.")
@click.option("-n", "-C", "--count", type=click.IntRange(1), help="Number of messages after which to end.")
@click.option("-v", "--verbose", is_flag=True, help="Print the topic before the body.")
@_connection_options
@json_option
def sub(
    filters: tuple[str, ...],
    topics: tuple[str, ...],
    qos: int,
    count: int | None,
    verbose: bool,
    gateway: str,
    as_json: bool,
    **who: Any,
) -> None:
    """Print messages of topics that match FILTER, until Ctrl-C.

    Where the gateway goes away it connects again; messages published meanwhile are missing. Short
    options are those of mosquitto_sub.

    \b
    Examples:
      penstock mqtt sub 'plant/#' -v
      penstock mqtt sub plant/+/temperature -n 10 --json
      penstock mqtt sub -h 127.0.0.1 -p 1883 -t 'plant/#' -v
    """
    filters += topics
    if not filters:
        raise click.UsageError("give a FILTER, or several")
    for one in filters:
        _refuse(one, legal_filter)

    def tell(what: str) -> None:
        if not as_json:
            click.echo(f"({what})", err=True)

    for message in islice(_messages(gateway, who, filters, qos, tell), count):
        show(message, verbose, as_json)


def _messages(
    gateway: str, who: dict[str, Any], filters: tuple[str, ...], qos: int, tell: Callable[[str], None]
) -> Iterator[Publish]:
    """The received messages, over one connection after the other. Raises what the first attempt ends with, and later
    whatever another one would not change."""
    attempt = 0
    rng = new_rng()
    while True:
        try:
            with MqttClient(gateway, **who) as client:
                client.subscribe(filters, qos=qos)
                tell(f"subscribed to {', '.join(filters)}")
                attempt = 1
                yield from client.messages()
        except PenstockError as error:
            if not attempt or not error.retryable:
                raise
            if attempt == 1:
                tell(f"{error.message}; trying again")
            pause(_AGAIN.wait_s(attempt, rng))
            attempt += 1


def show(message: Publish, verbose: bool, as_json: bool) -> None:
    """Prints a message; on a terminal in one line, as it is ``shown``."""
    body, encoding = body_text(message.payload)
    if as_json:
        row = {"topic": message.topic, "qos": message.qos, "retain": message.retain, "encoding": encoding, "body": body}
        print_json(row)
    else:
        if sys.stdout.isatty():
            body = line_text(message.payload)
        click.echo(f"{shown(message.topic)} {body}" if verbose else body)
    sys.stdout.flush()
