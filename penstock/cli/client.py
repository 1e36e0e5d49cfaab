"""``penstock client``: the MQTT clients that are connected, and messages for one of them."""

from __future__ import annotations

import sys
from datetime import datetime

import click

from penstock.blocking import Producer
from penstock.blocking.admin import Admin
from penstock.cli.display import confirm, json_option, print_json, print_rows
from penstock.client.session_tasks import ConnectedClient
from penstock.client.ways import DelayedReceipt
from penstock.world import RealClock

_COLUMNS = ("client", "user", "address", "protocol", "since", "subscriptions", "gateway")


@click.group()
def client() -> None:
    """List connected MQTT clients, disconnect one, send to one."""


@client.command("list")
@json_option
@click.pass_obj
def list_clients(server: str, as_json: bool) -> None:
    """List the connected MQTT clients: address, protocol, connection time and number of subscriptions.

    A dash marks a value that a gateway did not report in time. `penstock session list` shows what waits for each
    client.

    \b
    Examples:
      penstock client list
      penstock client list --json | jq 'select(.connected_s < 60)'
    """
    with Admin(server) as admin:
        now_ms = RealClock().wall_ms()
        rows = [_row(one, now_ms) for one in admin.clients()]
    print_rows(rows, _COLUMNS, as_json=as_json, empty="no clients are connected")


def _row(one: ConnectedClient, now_ms: int) -> dict[str, object]:
    is_told = one.subscriptions >= 0
    since = datetime.fromtimestamp(now_ms / 1000 - one.connected_s).astimezone().isoformat(timespec="seconds")
    return {
        "client": one.client,
        "user": one.user or None,
        "address": one.address or None,
        "protocol": one.protocol or None,
        "since": since if is_told else None,
        "connected_s": round(one.connected_s, 1) if is_told else None,
        "subscriptions": one.subscriptions if is_told else None,
        "gateway": one.gateway,
    }


@client.command()
@click.argument("client")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def disconnect(server: str, client: str, yes: bool, as_json: bool) -> None:
    """Close the connection of CLIENT; its session stays, and it may reconnect.

    `penstock session end` ends its session too. To refuse a client, use access rules.

    \b
    Examples:
      penstock client disconnect d7
    """
    if not yes:
        confirm(f"Disconnect {client}?", f"{client} stays connected")
    with Admin(server) as admin:
        admin.disconnect(client)
    if as_json:
        print_json({"client": client, "disconnected": True})
    else:
        click.echo(f"{client} is disconnected")


@client.command()
@click.argument("client")
@click.argument("body", required=False)
@click.option("--qos", type=click.IntRange(0, 2), default=1, help="Maximum QoS of the delivery.")
@click.option("--delay", metavar="TIME", help="Deliver it after this time: 5s, 10m, 2h.")
@json_option
@click.pass_obj
def send(server: str, client: str, body: str | None, qos: int, delay: str | None, as_json: bool) -> None:
    """Send BODY, or standard input, to one device: now, or when it reconnects to its session.

    The device receives it under $p2p/CLIENT, if it has subscribed to that name.

    \b
    Examples:
      penstock client send d7 open
      penstock client send d7 close --delay 10m
    """
    payload = sys.stdin.buffer.read() if body is None else body.encode()
    with Producer(servers=server) as producer:
        receipt = producer.send_to_device(client, payload, qos=qos, delay=delay)
    late = isinstance(receipt, DelayedReceipt)
    if as_json:
        print_json({"client": client, "id": receipt.id, "delayed": late})
    else:
        click.echo(f"{receipt.id} {'is delivered in ' + str(delay) if late else 'is stored'}")
