"""``penstock config``: the small key-value store of the name servers."""

from __future__ import annotations

import click

from penstock.blocking.admin import Admin
from penstock.cli.display import confirm, json_option, print_json, print_rows, shown
from penstock.errors import InvalidConfig
from penstock.protocol.requests.routes import GATEWAY_SETTINGS, ORDERED_TOPICS


@click.group()
def config() -> None:
    """List, set and delete entries of the name servers' key-value store."""


@config.command("list")
@click.argument("namespace", default="")
@json_option
@click.pass_obj
def list_entries(server: str, namespace: str, as_json: bool) -> None:
    """List the entries of NAMESPACE, or of all namespaces.

    \b
    Examples:
      penstock config list
      penstock config list ORDER_TOPIC_CONFIG
    """
    with Admin(server) as admin:
        rows = [one._asdict() for one in admin.config(namespace)]
    print_rows(rows, ("namespace", "key", "value"), as_json=as_json, empty="no entries")


@config.command("set")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@json_option
@click.pass_obj
def set_entry(server: str, namespace: str, key: str, value: str, as_json: bool) -> None:
    """Set an entry at all name servers.

    In ORDER_TOPIC_CONFIG the key is a topic, and the value lists the brokers among which its message keys are divided.
    Messages with a key then wait while its broker is away; without the entry they would go to another broker.

    \b
    Examples:
      penstock config set ORDER_TOPIC_CONFIG orders "broker-a;broker-b"
      penstock config set my-service limit 20
    """
    if not value:
        raise InvalidConfig("an entry has a value", hint="`penstock config delete` deletes it")
    _warn_of_brokers(server, namespace, value)
    _put(server, namespace, key, value, as_json)


def _warn_of_brokers(server: str, namespace: str, value: str) -> None:
    """Says which of an ordered topic's brokers are not there: messages with their keys wait for them."""
    if namespace != ORDERED_TOPICS:
        return
    with Admin(server) as admin:
        live = {one.broker for one in admin.brokers()}
    wanted = [part.partition(":")[0].strip() for part in value.split(";") if part.strip()]
    absent = [one for one in wanted if one not in live]
    if absent:
        who = shown(", ".join(absent))
        click.echo(f"warning: no live broker is called {who}: messages with a key of theirs wait for it", err=True)


@config.command()
@click.argument("namespace")
@click.argument("key")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def delete(server: str, namespace: str, key: str, yes: bool, as_json: bool) -> None:
    """Delete an entry at all name servers."""
    if not yes:
        confirm(f"Delete {key} of {namespace}?", "the entry stays")
    _put(server, namespace, key, "", as_json)


@config.command()
@click.argument("setting")
@click.argument("value", default="")
@click.pass_obj
def live(server: str, setting: str, value: str) -> None:
    """Change a setting of all name servers until their next start, or without VALUE let each have its own again.

    SETTING is log_level (debug, info, warning, error) or connection_log (off, sampled, on); `penstock broker set`
    changes those of a broker.

    \b
    Examples:
      penstock config live log_level debug
      penstock config live log_level
    """
    with Admin(server) as admin:
        admin.change_name_servers(setting, value)
    said = f"of the name servers is {value} until their next start" if value else "of each name server is its own again"
    click.echo(f"{setting} {said}")


@config.command()
@click.argument("setting")
@click.argument("value", default="")
@json_option
@click.pass_obj
def gateways(server: str, setting: str, value: str, as_json: bool) -> None:
    """Change a setting of all gateways while they run, or without VALUE let each have its own again.

    SETTING is trace_sample (0 to 1; where trace_export is set), log_level (debug, info, warning, error) or
    connection_log (off, sampled, on). It is an entry of the name servers (GATEWAY_SETTINGS in `penstock config list`)
    that counts within seconds, also for gateways that start later; name servers keep it over a restart where
    config_file is set.

    \b
    Examples:
      penstock config gateways trace_sample 0.01
      penstock config gateways trace_sample
    """
    said = f"{setting} of all gateways is {value}" if value else f"{setting} of each gateway is its own again"
    _put(server, GATEWAY_SETTINGS, setting, value, as_json, said)


def _put(server: str, namespace: str, key: str, value: str, as_json: bool, said: str = "") -> None:
    with Admin(server) as admin:
        admin.set_config(namespace, key, value)
    if as_json:
        print_json({"namespace": namespace, "key": key, "value": value or None})
    else:
        click.echo(said or (f"{namespace} {key} is {value}" if value else f"{namespace} {key} is deleted"))
