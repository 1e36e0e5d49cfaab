"""``penstock broker``: the brokers of a cluster, and what clients may do with their topics."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.blocking.admin import Admin
from penstock.cli.display import confirm, json_option, print_rows, shown
from penstock.client.group_tasks import BrokerReader

_NO_READS = "nothing was read without a group in the last ten minutes (a Spark job that is stopped is not known here)"
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
@json_option
@click.pass_obj
def show(server: str, name: str, as_json: bool) -> None:
    """Show the readers of a broker: groups with members or unread messages, and topics that are read without a group.

    A broker does not know how far Spark jobs and readers have read, because they have no group. It lists the topics
    that they read in the last ten minutes, and not those of jobs that are stopped.

    \b
    Examples:
      penstock broker show broker-a
    """
    with Admin(server) as admin:
        rows = [
            {
                "group": one.group or None,
                "topic": one.topic or None,
                "members": one.members if one.group else None,
                "lag": one.lag if one.group else None,
                "read_ago_s": None if one.group else round(one.ago_s, 1),
            }
            for one in admin.broker_readers(name)
        ]
    columns = ("group", "topic", "members", "lag", "read_ago_s")
    print_rows(rows, columns, as_json=as_json, empty="no group has messages to read or members, and " + _NO_READS)


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
    The command lists the broker's readers, as `penstock broker show` does later.

    \b
    Examples:
      penstock broker allow broker-a --no-write     before maintenance: wait until `broker show` shows no lag
      penstock broker allow broker-a --write        afterwards
    """
    if not yes and False in (read, write):
        taken = " or ".join([word for word, may in (("read", read), ("write", write)) if may is False])
        confirm(f"No client will {taken} topics of {name} until you allow it again. Go on?", "nothing has changed")
    with Admin(server) as admin:
        admin.allow_broker(name, read=read, write=write)
        readers = admin.broker_readers(name) if write is False and not as_json else []
    _print(server, as_json)
    if write is False and not as_json:
        click.echo(_readers_text(readers), err=True)


@broker.command("set")
@click.argument("name")
@click.argument("setting")
@click.argument("value", default="")
@click.pass_obj
def set_setting(server: str, name: str, setting: str, value: str) -> None:
    """Change a setting of a running broker until its next start, or without VALUE let it have its own again.

    SETTING is log_level (debug, info, warning, error) or connection_log (off, sampled, on). The broker refuses every
    other one: change the configuration file and start the broker again.

    \b
    Examples:
      penstock broker set broker-a log_level debug
      penstock broker set broker-a connection_log on
      penstock broker set broker-a connection_log
    """
    with Admin(server) as admin:
        admin.change_setting(name, setting, value)
    click.echo(f"{setting} of {name} is {f'{value} until its next start' if value else 'its own again'}")


def _readers_text(readers: Sequence[BrokerReader]) -> str:
    """A sentence on the readers of a broker that is to be drained."""
    lagging = [f"{shown(one.group)} ({one.lag:,} messages)" for one in readers if one.lag]
    topics = [shown(one.topic) for one in readers if one.topic]
    said = f"still to read: {', '.join(lagging)}" if lagging else "no group has messages to read"
    if topics:
        said += f"; read without a group, how far is not known here (Spark jobs, readers): {', '.join(topics)}"
    else:
        said += f"; {_NO_READS}"
    return said


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
