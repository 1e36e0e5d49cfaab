"""``penstock topic``: topics of all brokers of the cluster."""

from __future__ import annotations

from typing import Any, Final

import click

from penstock.blocking import Routes, bootstrap
from penstock.blocking.admin import Admin
from penstock.cli.display import confirm, incomplete_option, json_option, named, print_json, print_rows, to_list
from penstock.cli.durations import DURATION, shown_duration
from penstock.client import topic_tasks
from penstock.client.arguments import check_integer
from penstock.client.completeness import Holders
from penstock.client.topic_tasks import TopicAt, topic_at
from penstock.errors import InvalidRequest, NoRoute, TopicNotFound
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from penstock.protocol.requests.topics import (
    ACCESSES,
    UNCHANGED,
    CreateTopic,
    DescribeTopic,
    ListTopics,
    TopicDetail,
    TopicList,
)
from penstock.protocol.topic_names import topic_of
from topicmap.queues import AUDIT_TOPIC

LEVELS: Final = ("quorum", "disk", "cache")
"""Of acknowledged messages: committed by a group of copies, on one disk, in memory."""
SERVERS_TOPICS: Final = (*GATEWAYS_TOPICS, AUDIT_TOPIC)
"""Topics of the servers themselves, which ``penstock topic list`` leaves out."""
_retention_option = click.option(
    "--retention",
    type=DURATION,
    metavar="TIME",
    help="How long messages are kept: 2h, 7d; 0: as long as the broker's log.",
)
_access_option = click.option(
    "--access", type=click.Choice(ACCESSES), help="The permission of clients: read and write, one of them, or none."
)
_trace_option = click.option(
    "--trace-every", type=click.IntRange(0), help="Trace one message in this number; 1: all; 0: none."
)


@click.group()
def topic() -> None:
    """Create, list, show, change, purge and delete topics."""


@topic.command()
@click.argument("name")
@click.option("--queues", type=click.IntRange(1), help="Queues per broker; the broker's default if left out.")
@click.option(
    "--level", type=click.Choice(LEVELS), help="The level that a message has reached when it is acknowledged."
)
@_retention_option
@_access_option
@_trace_option
@click.option(
    "--broker", default="", metavar="NAME", callback=named, help="Only on this broker; on all of them if left out."
)
@json_option
@click.pass_obj
def create(
    server: str,
    name: str,
    queues: int | None,
    level: str | None,
    retention: float | None,
    access: str | None,
    trace_every: int | None,
    broker: str,
    as_json: bool,
) -> None:
    """Create a topic, or make sure that it is as given.

    \b
    Examples:
      penstock topic create orders
      penstock topic create telemetry --queues 8 --level cache
      penstock topic create logs --retention 2h
    """
    topic = topic_of(name)
    kept = int(retention) if retention else UNCHANGED
    check_integer("--retention in seconds", kept)
    check_integer("--trace-every", trace_every or 0)
    wanted = CreateTopic(topic, queues or 0, level or "", kept, access or "", trace_every or UNCHANGED)
    with bootstrap(server) as routes:
        for route in _brokers(routes, broker):
            _print_made(topic_at(route.broker, routes.link(route.address).ask(wanted, TopicDetail)), as_json)


@topic.command()
@click.argument("name")
@click.option("--queues", type=click.IntRange(1), help="Queues per broker.")
@click.option("--level", type=click.Choice(LEVELS), help="The level of an acknowledged message.")
@_retention_option
@_access_option
@_trace_option
@click.option(
    "--broker", default="", metavar="NAME", callback=named, help="Only on this broker; on all that have it if left out."
)
@json_option
@click.pass_obj
def change(
    server: str,
    name: str,
    queues: int | None,
    level: str | None,
    retention: float | None,
    access: str | None,
    trace_every: int | None,
    broker: str,
    as_json: bool,
) -> None:
    """Change a topic; options that you leave out change nothing.

    Producers write to new queues at once. If you reduce the number, the last queues take no more messages and are
    removed when every group that reads the topic has read them. Either way a key may map to another queue from then on.

    \b
    Examples:
      penstock topic change orders --queues 8
      penstock topic change logs --retention 1h --level cache
      penstock topic change orders --trace-every 100  see `penstock message trace`
      penstock topic change orders --access r        read-only, until --access rw
    """
    if not (queues or level or access) and retention is None and trace_every is None:
        hint = "give --queues, --level, --retention, --access or --trace-every"
        raise InvalidRequest("no change is given", hint=hint)
    kept = None if retention is None else int(retention)
    with Admin(server) as admin:
        changed = admin.change_topic(
            name,
            queues=queues or 0,
            level=level or "",
            retention_s=kept,
            access=access or "",
            trace_every=trace_every,
            broker=broker,
        )
    for one in changed:
        _print_made(one, as_json)


@topic.command()
@click.argument("name")
@click.option("--retained", is_flag=True, help="Remove its retained messages too.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def purge(server: str, name: str, retained: bool, yes: bool, as_json: bool) -> None:
    """Remove all messages of a topic; the topic stays, and its offsets continue.

    Groups continue after the removed messages. Messages that wait for MQTT sessions stay. So do retained messages, the
    last values of MQTT names, without --retained.

    \b
    Examples:
      penstock topic purge orders
      penstock topic purge orders --yes --json
    """
    with Admin(server) as admin:
        if not yes:
            known = admin.topic(name)
            what = f"{sum([one.messages for one in known]):,} messages"
            what += f" and {sum([one.retained for one in known]):,} retained messages" if retained else ""
            confirm(f"Remove all {what} of topic {name}?", f"topic {name} keeps its messages")
        for one in admin.run(topic_tasks.purge(name, retained=retained)):
            _print_purged(one, retained, as_json)


def _print_purged(was: TopicAt, retained: bool, as_json: bool) -> None:
    gone, kept = (was.retained, 0) if retained else (0, was.retained)
    if as_json:
        row = {"topic": was.topic, "broker": was.broker, "messages": was.messages}
        print_json(row | {"retained": gone, "retained_kept": kept, "purged": True})
        return
    also = f" and {gone:,} retained messages" if gone else ""
    click.echo(f"{was.topic}: {was.messages:,} messages{also} removed on {was.broker}")
    if kept:
        click.echo(f"{kept:,} retained messages stay on {was.broker}; --retained removes them too", err=True)


def _print_made(one: TopicAt, as_json: bool) -> None:
    if as_json:
        print_json({name: value for name, value in _row(one).items() if name != "name"})
        return
    draining = f" ({one.draining} more are being drained)" if one.draining else ""
    kept = f", kept for {shown_duration(one.retention_s)}" if one.retention_s else ""
    access = "" if one.access == "rw" else f", access {one.access}"
    click.echo(f"{one.topic}: {one.queues} queues{draining} on {one.broker}, level {one.level}{kept}{access}")


def _row(one: TopicAt) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "name": one.name,
        "broker": one.broker,
        "queues": one.queues,
        "level": one.level,
        "draining": one.draining,
        "retention_s": one.retention_s or None,
        "access": one.access,
        "trace_every": one.trace_every or None,
    }


@topic.command("list")
@click.option("--all", "shows_all", is_flag=True, help="Those that gateways and the audit log use too.")
@incomplete_option
@json_option
@click.pass_obj
def list_topics(server: str, shows_all: bool, allow_incomplete: bool, as_json: bool) -> None:
    """List the topics of all brokers, each with the first level of MQTT names that it stands for.

    \b
    Examples:
      penstock topic list
      penstock topic list --all --json | jq .topic
    """
    rows: list[dict[str, Any]] = []
    with bootstrap(server) as routes:
        for route in to_list(routes.holders(), "the topics", allow_incomplete):
            for one in routes.link(route.address).ask(ListTopics(), TopicList).topics:
                if shows_all or one.topic not in SERVERS_TOPICS:
                    rows.append(_row(topic_at(route.broker, one)))
    rows.sort(key=lambda row: (row["topic"], row["broker"]))
    columns = ("topic", "name", "broker", "queues", "level", "retention_s", "access")
    print_rows(rows, columns, as_json=as_json, empty="no topics yet")


@topic.command()
@click.argument("name")
@incomplete_option
@json_option
@click.pass_obj
def show(server: str, name: str, allow_incomplete: bool, as_json: bool) -> None:
    """Show a topic's queues and how many messages each holds.

    \b
    Examples:
      penstock topic show orders
    """
    rows: list[dict[str, Any]] = []
    topic = topic_of(name)
    with bootstrap(server) as routes:
        for route in to_list(_having(routes, topic), f"topic {name!r}", allow_incomplete):
            detail = routes.link(route.address).ask(DescribeTopic(topic), TopicDetail)
            for bound in detail.bounds:
                place = {"topic": topic, "broker": route.broker, "queue": bound.queue, "level": detail.level}
                rows.append(place | {"min": bound.min, "end": bound.end, "messages": bound.end - bound.min})
    print_rows(rows, ("queue", "broker", "level", "min", "end", "messages"), as_json=as_json)


@topic.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@incomplete_option
@json_option
@click.pass_obj
def delete(server: str, name: str, yes: bool, allow_incomplete: bool, as_json: bool) -> None:
    """Delete a topic at all brokers, with its messages, retained messages and the offsets of groups in it.

    Messages that wait for MQTT sessions still reach them. A topic that is made again begins its offsets where this one
    ended.

    
    Examples:
      penstock topic delete orders
      penstock topic delete orders --yes --json
    """
    topic = topic_of(name)
    with bootstrap(server) as routes:
        if not yes:
            having = to_list(_having(routes, topic), f"topic {name!r}", allow_incomplete)
            details = [routes.link(route.address).ask(DescribeTopic(topic), TopicDetail) for route in having]
            count = sum([_messages_in(detail) for detail in details])
            confirm(f"Delete topic {name} with {count:,} messages?", f"topic {name} stays")
        for broker, was in routes.delete_topic(topic, allow_incomplete=allow_incomplete).items():
            if as_json:
                row = {"topic": topic, "broker": broker, "queues": was.queues, "messages": _messages_in(was)}
                print_json(row | {"deleted": True})
            else:
                click.echo(f"{topic}: deleted on {broker}, with {_messages_in(was):,} messages")


def _messages_in(detail: TopicDetail) -> int:
    return sum([bound.end - bound.min for bound in detail.bounds])


def _brokers(routes: Routes, name: str) -> list[BrokerRoute]:
    brokers = routes.brokers()
    chosen = [route for route in brokers if name in ("", route.broker)]
    if not chosen:
        raise NoRoute(f"no live broker is called {name}", hint="there are: " + ", ".join(one.broker for one in brokers))
    return chosen


def _having(routes: Routes, name: str) -> Holders:
    try:
        return routes.holders(name)
    except NoRoute:
        raise TopicNotFound(f"there is no topic {name}", hint="`penstock topic list` shows all") from None
