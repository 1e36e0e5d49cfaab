"""``penstock client``: the MQTT clients that are connected, and messages for one of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime

import click

from penstock.blocking import Producer
from penstock.blocking.admin import Admin
from penstock.cli.display import confirm, json_option, line_text, print_json, print_rows
from penstock.client.session_tasks import ConnectedClient
from penstock.client.ways import DelayedReceipt
from penstock.errors import SessionNotFound
from penstock.protocol.requests.sessions import SeenPacket
from penstock.world import RealClock, pause

EVERY_S = 1.0
_COLUMNS = ("client", "user", "address", "protocol", "since", "subscriptions", "gateway")


@click.group()
def client() -> None:
    """List connected MQTT clients, follow, disconnect one, send to one."""


@client.command("list")
@json_option
@click.pass_obj
def list_clients(server: str, as_json: bool) -> None:
    """List the connected MQTT clients: address, protocol, connection time and number of subscriptions.

    A dash marks a value that a gateway did not report in time. `penstock session list` shows each client's waiting
    messages.

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
@click.option("-n", "--count", type=click.IntRange(1), help="End after this number of packets.")
@json_option
@click.pass_obj
def watch(server: str, client: str, count: int | None, as_json: bool) -> None:
    """Follow the MQTT packets of CLIENT until Ctrl-C: time, direction, type, packet id, topic or filters, QoS, payload
    size, reason codes; never a payload.

    It needs the right `admin` of the cluster, and the audit log has an entry of each second. The client is never slowed
    down: packets beyond 2,000 a second are lost, and a line says how many.

    \b
    Examples:
      penstock client watch d7
      penstock client watch d7 --json | jq 'select(.reasons != [])'
    """
    shown = 0
    with Admin(server) as admin:
        for packet, lost in _packets(admin, client):
            if lost:
                click.echo(f"{lost:,} packets of {client} are not shown: there were too many", err=True)
            if as_json:
                print_json(packet._asdict())
            else:
                click.echo(_line(packet))
            shown += 1
            if shown == count:
                return


def _packets(admin: Admin, client: str) -> Iterator[tuple[SeenPacket, int]]:
    """The packets, each with how many were lost before it. Raises ``SessionNotFound`` for a client that is not
    connected at first."""
    after, is_there = 0, False
    while True:
        try:
            seen = admin.watch_client(client, after)
        except SessionNotFound as error:
            if not after and not is_there:
                raise
            if is_there:
                click.echo(f"{error.message}; it is followed again when it is back", err=True)
            seen, is_there = (), False
        else:
            is_there = True
        for packet in seen:
            yield packet, max(0, packet.number - after - 1) if after else 0
            after = packet.number
        pause(EVERY_S)


def _line(packet: SeenPacket) -> str:
    at = datetime.fromtimestamp(packet.at_ms / 1000).astimezone().strftime("%H:%M:%S.%f")[:-3]
    parts = [at, "to  " if packet.is_sent else "from", packet.kind]
    if packet.packet_id:
        parts.append(f"id={packet.packet_id}")
    if packet.name:
        parts.append(f"{line_text(packet.name.encode(), 200)} qos={packet.qos}")
    if packet.kind == "PUBLISH":
        parts.append(f"payload={packet.payload_bytes}")
    parts += [word for word in ("retain", "dup") if getattr(packet, word)]
    if packet.reasons:
        parts.append("reasons=" + ",".join([f"0x{code:02x}" for code in packet.reasons]))
    return " ".join(parts)


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
