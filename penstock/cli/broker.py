"""``penstock broker``: the brokers of a cluster, and what clients may do with their topics."""

from __future__ import annotations

import click

from penstock.blocking.admin import Admin
from penstock.cli.display import confirm, json_option, print_rows

_COLUMNS = ("broker", "address", "version", "read", "write")


@click.group()
def broker() -> None:
    """Look at brokers; take one out of service for maintenance."""


@broker.command("list")
@json_option
@click.pass_obj
def list_brokers(server: str, as_json: bool) -> None:
    """List the live brokers, and whether their topics may be read and written.

    \b
    Examples:
      penstock broker list
    """
    _print(server, as_json)


@broker.command()
@click.argument("name")
@click.option("--read/--no-read", default=None, help="Whether consumers, readers and Spark may read its topics.")
@click.option("--write/--no-write", default=None, help="Whether new messages may be written to its topics.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def allow(server: str, name: str, read: bool | None, write: bool | None, yes: bool, as_json: bool) -> None:
    """Allow or forbid clients to read or write the topics of a broker, until the next change.

    With --no-write producers use the other brokers at once, and the broker refuses messages that are on their way. It
    still processes delayed messages, retries, transactions that have begun, and messages that wait for MQTT sessions.

    \b
    Examples:
      penstock broker allow broker-a --no-write     before maintenance: wait until `penstock group list` shows no lag
      penstock broker allow broker-a --write        afterwards
    """
    if not yes and False in (read, write):
        taken = " or ".join([word for word, may in (("read", read), ("write", write)) if may is False])
        confirm(f"No client will {taken} topics of {name} until you allow it again. Go on?", "nothing has changed")
    with Admin(server) as admin:
        admin.allow_broker(name, read=read, write=write)
    _print(server, as_json)


def _print(server: str, as_json: bool) -> None:
    with Admin(server) as admin:
        rows = [
            {
                "broker": one.broker,
                "address": one.address,
                "version": one.version,
                "read": one.read,
                "write": one.write,
            }
            for one in admin.brokers()
        ]
    print_rows(rows, _COLUMNS, as_json=as_json, empty="no brokers")
