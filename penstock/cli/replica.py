"""``penstock replica``: the copies of a broker's log: their states, their roles and their leader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from penstock.blocking.admin import Admin
from penstock.cli.display import confirm, json_option, named, print_json, print_rows
from penstock.client.replica_tasks import ReplicaGroup, ReplicaNode, check_forced
from penstock.client.replica_words import advice_on, losses, shown_bytes, state_of, words_for
from penstock.errors import Busy, InvalidConfig, NoRoute, PenstockError, Unavailable
from penstock.world import RealClock, new_secret, pause

MOVE_S: Final = 10.0
"""Seconds to wait for a move of the lead."""
BUSY_S: Final = 10.0
"""Seconds for which a change is tried again while the group is busy."""
LOOK_S: Final = 0.1
_COLUMNS: Final = ("broker", "node", "role", "state", "behind", "heard", "address")

broker_option = click.option(
    "--broker", default="", metavar="NAME", callback=named, help="The broker; not needed if there is only one."
)
_address_option = click.option(
    "--address", default="", metavar="HOST:PORT", help="Where clients reach a node, if no name server answers."
)
_yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
_two_option = click.option(
    "--yes-no-failover", is_flag=True, help="Accept two voters: nothing is stored while either is away."
)


@click.group()
def replica() -> None:
    """Look after the copies of a broker's log on several nodes.

    A node with a copy is a voter or an observer. Voters elect the leader. While a majority of voters is up, messages
    are stored, whichever node dies. Observers have a copy, serve reads, and have no vote.
    """


@replica.command()
def key() -> None:
    """Make a key for the nodes of a cluster. Every node needs the same one: it goes with `penstock up --key FILE`.

    \b
    Examples:
      (umask 077; penstock replica key > cluster.key)
    """
    click.echo(new_secret().hex())


@replica.command("list")
@broker_option
@_address_option
@json_option
@click.pass_obj
def list_replicas(server: str, broker: str, address: str, as_json: bool) -> None:
    """List the nodes of each broker, their lag, and the failures that the group survives.

    \b
    Examples:
      penstock replica list
      penstock replica list --json | jq 'select(.behind > 0)'
      penstock replica list --address 10.0.0.2:10911    if no name server answers
    """
    with Admin(server) as admin:
        _print(admin.replicas(broker, address=address), as_json)


@replica.command()
@click.argument("nodes", nargs=-1, required=True)
@_two_option
@broker_option
@json_option
@click.pass_obj
def promote(server: str, nodes: Sequence[str], yes_no_failover: bool, broker: str, as_json: bool) -> None:
    """Make observers voters, one after the other. Each must have the whole committed log. Go from one voter to three at
    once: with two, nothing is stored while either is away.

    \b
    Examples:
      penstock replica promote b c
    """
    with Admin(server) as admin:
        _patiently(lambda: admin.promote_replica(nodes, broker=broker, yes_no_failover=yes_no_failover))
        _print(admin.replicas(broker), as_json)


@replica.command()
@click.argument("node")
@_two_option
@broker_option
@json_option
@click.pass_obj
def demote(server: str, node: str, yes_no_failover: bool, broker: str, as_json: bool) -> None:
    """Make a voter an observer: it keeps its copy and serves reads, without a vote.

    \b
    Examples:
      penstock replica demote c --yes-no-failover
    """
    with Admin(server) as admin:
        _patiently(lambda: admin.demote_replica(node, broker=broker, yes_no_failover=yes_no_failover))
        _print(admin.replicas(broker), as_json)


@replica.command()
@click.argument("node")
@_two_option
@broker_option
@_yes_option
@json_option
@click.pass_obj
def remove(server: str, node: str, yes_no_failover: bool, broker: str, yes: bool, as_json: bool) -> None:
    """Take a node out of its group. Stop it afterwards; its folder can be deleted.

    \b
    Examples:
      penstock replica remove c --yes
    """
    with Admin(server) as admin:
        if not yes:
            group = _one(admin.replicas(broker), broker)
            was = group.node(node)
            confirm(
                f"{node} is {_a(was)} of broker {group.group}: {state_of(was)}. It gets no more of the log. Remove it?",
                f"{node} stays",
            )
        _patiently(lambda: admin.remove_replica(node, broker=broker, yes_no_failover=yes_no_failover))
        _print(admin.replicas(broker), as_json)


@replica.command()
@click.argument("node")
@click.option("--by", required=True, metavar="NODE", help="The new node, which has joined and is level.")
@broker_option
@json_option
@click.pass_obj
def replace(server: str, node: str, by: str, broker: str, as_json: bool) -> None:
    """Replace a node whose disk is lost by a new one.

    A new folder lacks the node's promises, so a node with one is refused under the old name. Start it under another
    name, wait until `penstock replica list` shows that it has caught up, and replace the old one.

    \b
    Examples:
      penstock up --data /new-disk --node c2 --join a:10912 --key cluster.key
      penstock replica replace c --by c2
    """
    with Admin(server) as admin:
        _patiently(lambda: admin.replace_replica(node, by, broker=broker))
        _print(admin.replicas(broker), as_json)


@replica.command()
@click.argument("count", type=click.IntRange(1))
@broker_option
@json_option
@click.pass_obj
def copies(server: str, count: int, broker: str, as_json: bool) -> None:
    """Set the minimum number of disks that have a message before it is acknowledged, in addition to a majority of the
    voters. With fewer nodes messages are refused, never acknowledged with fewer copies.

    \b
    Examples:
      penstock replica copies 2        one voter and one observer: both have what is acknowledged
    """
    with Admin(server) as admin:
        _patiently(lambda: admin.set_copies(count, broker=broker))
        _print(admin.replicas(broker), as_json)


@replica.command("move-leader")
@click.argument("node")
@broker_option
@json_option
@click.pass_obj
def move(server: str, node: str, broker: str, as_json: bool) -> None:
    """Move the lead to another voter, for maintenance of the leader. Nothing is lost; messages wait for a moment.

    \b
    Examples:
      penstock replica move-leader b
    """
    clock = RealClock()
    with Admin(server) as admin:
        admin.move_leader(node, broker=broker)
        until = clock.monotonic() + MOVE_S
        group = _looked(admin, broker)
        while (group is None or group.leader != node) and clock.monotonic() < until:
            pause(LOOK_S)
            group = _looked(admin, broker)
        if group is None or group.leader != node:
            leads = f"{group.leader} leads on" if group and group.leader else "no leader yet"
            raise Unavailable(f"{node} did not take the lead: {leads}", hint="penstock replica list says how far it is")
        _print([group], as_json)


@replica.command("force-leader")
@click.argument("node")
@click.option("--lost", multiple=True, required=True, metavar="NODE", help="A node that is lost for good. Repeatable.")
@click.option("--words", default="", help="The confirming words, for scripts.")
@broker_option
@_address_option
@json_option
@click.pass_obj
def force(server: str, node: str, lost: Sequence[str], words: str, broker: str, address: str, as_json: bool) -> None:
    """Have a node lead although a majority of the voters is lost for good: this may lose acknowledged messages.

    It shows possible losses and asks for confirming words. While any of the lost nodes can be brought
    back with its disk, bring it back instead.

    \b
    Examples:
      penstock replica force-leader b --lost a --lost c
      penstock replica force-leader b --lost a --lost c --address 10.0.0.2:10911
    """
    with Admin(server) as admin:
        group = _one(admin.replicas(broker, address=address), broker)
        check_forced(group, node, lost)
        for sentence in losses(group, node, lost):
            click.echo(sentence, err=True)
        said = words or click.prompt(f"Type `{words_for(lost)}` to go on", default="", show_default=False, err=True)
        if said.strip() != words_for(lost):
            raise InvalidConfig("nothing has changed", hint=f"the words are: {words_for(lost)}")
        admin.force_leader(node, lost, broker=broker, address=address)
        _print(admin.replicas(broker, address=group.node(node).address), as_json)


def _patiently(act: Callable[[], None]) -> None:
    """Calls ``act``, and again for ``BUSY_S`` seconds while the group is busy: with another change, or because a node
    has yet to get the last messages. Raises as ``act``."""
    clock = RealClock()
    until = clock.monotonic() + BUSY_S
    while True:
        try:
            return act()
        except Busy:
            if clock.monotonic() >= until:
                raise
        pause(LOOK_S)


def _looked(admin: Admin, broker: str) -> ReplicaGroup | None:
    """The group as it is; None while no node of it answers."""
    try:
        return _one(admin.replicas(broker), broker)
    except PenstockError:
        return None


def _one(groups: Sequence[ReplicaGroup], broker: str) -> ReplicaGroup:
    if not groups:
        raise NoRoute("there is no broker", hint="penstock status says which servers answer")
    if len(groups) != 1 and not broker:
        names = ", ".join(one.group for one in groups)
        raise InvalidConfig("there are several brokers", hint=f"say which: --broker, one of {names}")
    return groups[0]


def _a(node: ReplicaNode) -> str:
    return f"an {node.role}" if node.role == "observer" else f"a {node.role}"


def _print(groups: Sequence[ReplicaGroup], as_json: bool) -> None:
    """Prints the nodes, and for people the advice on their groups."""
    if as_json:
        for group in groups:
            for one in group.nodes:
                print_json(_row(group, one))
        return
    rows = [_row(group, one) | _for_people(one) for group in groups for one in group.nodes]
    print_rows(rows, _COLUMNS, as_json=False, empty="no brokers")
    for group in groups:
        prefix = f"{group.group}: " if len(groups) > 1 else ""
        for sentence in advice_on(group):
            click.echo(prefix + sentence, err=True)


def _row(group: ReplicaGroup, one: ReplicaNode) -> dict[str, Any]:
    return {
        "broker": group.group,
        "node": one.node,
        "role": one.role,
        "epoch": group.epoch,
        "state": state_of(one),
        "level": one.is_level,
        "durable": one.durable,
        "end": one.end,
        "behind": one.behind,
        "behind_s": one.behind_s,
        "heard_s": one.heard_s,
        "damaged": one.damaged,
        "repaired": one.repaired,
        "address": one.address or None,
        "replica_address": one.replica_address or None,
        "committed": group.committed,
        "copies": group.copies,
        "refusal": group.refusal or None,
    }


def _for_people(one: ReplicaNode) -> dict[str, Any]:
    return {
        "behind": None if one.behind is None else shown_bytes(one.behind),
        "heard": None if one.heard_s is None else "now" if one.heard_s < 1 else f"{one.heard_s:,.0f} s ago",
    }
