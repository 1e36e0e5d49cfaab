"""``penstock topic``: topics of all brokers of the cluster."""

from __future__ import annotations

from typing import Any

import click

from penstock.blocking import Routes, bootstrap
from penstock.cli.display import confirm, incomplete_option, json_option, print_json, print_rows, to_list
from penstock.client.completeness import Holders
from penstock.errors import NoRoute, TopicNotFound
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from penstock.protocol.requests.topics import CreateTopic, DescribeTopic, ListTopics, TopicDetail, TopicList
from penstock.protocol.topic_names import topic_of
from topicmap.queues import readable


@click.group()
def topic() -> None:
    """Create, list, look at and delete topics."""


@topic.command()
@click.argument("name")
@click.option("--queues", type=click.IntRange(1), help="Queues per broker; the broker's default if left out.")
@click.option(
    "--level", type=click.Choice(["disk", "cache"]), help="What a message has reached when it is acknowledged."
)
@click.option("--broker", default="", metavar="NAME", help="Only on this broker; on all of them if left out.")
@json_option
@click.pass_obj
def create(server: str, name: str, queues: int | None, level: str | None, broker: str, as_json: bool) -> None:
    """Create a topic, or make sure that it is as given.

    \b
    Examples:
      penstock topic create orders
      penstock topic create telemetry --queues 8 --level cache
    """
    topic = topic_of(name)
    with bootstrap(server) as routes:
        for route in _brokers(routes, broker):
            made = routes.link(route.address).ask(CreateTopic(topic, queues or 0, level or ""), TopicDetail)
            if as_json:
                print_json({"topic": made.topic, "broker": route.broker, "queues": made.queues, "level": made.level})
            else:
                click.echo(f"{made.topic}: {made.queues} queues on {route.broker}, level {made.level}")


@topic.command("list")
@click.option("--all", "shows_all", is_flag=True, help="Those that the gateways keep for themselves too.")
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
                if shows_all or one.topic not in GATEWAYS_TOPICS:
                    place = {"topic": one.topic, "name": readable(one.topic), "broker": route.broker}
                    rows.append(place | {"queues": one.queues, "level": one.level})
    rows.sort(key=lambda row: (row["topic"], row["broker"]))
    print_rows(rows, ("topic", "name", "broker", "queues", "level"), as_json=as_json, empty="no topics yet")


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
@click.option("--yes", is_flag=True, help="Do not ask before.")
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
