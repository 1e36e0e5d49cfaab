"""``penstock timer``, ``penstock transaction`` and ``penstock dlq``: messages that wait for a time, for an outcome, or
for an operator."""

from __future__ import annotations

from typing import Any, Final

import click

from penstock.blocking.admin import Admin
from penstock.cli.display import body_text, confirm, json_option, line_text, named, print_rows
from penstock.cli.durations import shown_time
from penstock.client.administration import DeadLetter, FrozenClock, Transaction
from penstock.errors import InvalidRequest, NoRoute, PenstockError, TopicNotFound

_SHOWN: Final = 80
broker_option = click.option("--broker", default="", callback=named, help="Its broker; needed if there are several.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group()
def timer() -> None:
    """List and cancel delayed messages."""


@timer.command("list")
@json_option
@click.pass_obj
def list_timers(server: str, as_json: bool) -> None:
    """List the delayed messages of all brokers, in the order in which they are due.

    \b
    Examples:
      penstock timer list
      penstock timer list --json | jq 'select(.topic == "orders")'
    """
    with Admin(server) as admin:
        rows = [
            {
                "timer": f"{one.id}@{one.due_ms}",
                "broker": one.broker,
                "due": shown_time(one.due_ms),
                "topic": None if one.damaged else one.topic,
                "key": one.key or None,
                "bytes": one.size,
                "damaged": one.damaged,
            }
            for one in admin.delayed()
        ]
        frozen = admin.frozen_clocks()
    print_rows(rows, ("timer", "broker", "due", "topic", "key", "bytes"), as_json=as_json, empty="no delayed messages")
    for one in frozen:
        click.echo(
            f"{_frozen(one)}: no delayed message is delivered there until it is right again, or until "
            "`penstock timer confirm-clock` confirms it",
            err=True,
        )


def _frozen(one: FrozenClock) -> str:
    shown = shown_time(one.now_ms + int(one.ahead_s * 1000))
    return f"the clock of {one.broker} has jumped forward by {one.ahead_s:.0f} s, to {shown}"


@timer.command()
@click.argument("timer")
@broker_option
@yes_option
@click.pass_obj
def cancel(server: str, timer: str, broker: str, yes: bool) -> None:
    """Cancel a delayed message: it is never delivered. TIMER is its id in `penstock timer list`.

    \b
    Examples:
      penstock timer cancel 40213@1795860000000
    """
    id, _, due_ms = timer.partition("@")
    if not id.isdigit() or not due_ms.isdigit():
        raise InvalidRequest(f"{timer!r} is no timer", hint="copy it from `penstock timer list`: 40213@1795860000000")
    if not yes:
        confirm(f"The message of timer {timer} will be gone. Cancel it?", f"timer {timer} stays")
    with Admin(server) as admin:
        admin.cancel(broker, int(id), int(due_ms))
    click.echo(f"cancelled {timer}")


@timer.command("confirm-clock")
@click.option(
    "--broker",
    default="",
    callback=named,
    help="The broker whose clock is right; if left out, all whose clocks jumped.",
)
@yes_option
@click.pass_obj
def confirm_clock(server: str, broker: str, yes: bool) -> None:
    """Confirm that a broker's clock, which has jumped forward, is right.

    Messages that are due by this clock are delivered at once. If the clock is wrong, correct it instead: until then the
    broker delivers no delayed message.

    \b
    Examples:
      penstock timer confirm-clock --broker broker-a
    """
    with Admin(server) as admin:
        frozen = [one for one in admin.frozen_clocks() if one.broker == broker or not broker]
        for one in frozen:
            if not yes:
                told = f"{_frozen(one)[0].upper()}{_frozen(one)[1:]}"
                confirm(f"{told}. Is that the right time?", f"the clock of {one.broker} is not confirmed")
            if admin.confirm_clock(one):
                click.echo(f"confirmed the clock of {one.broker}")
        if not frozen and broker:
            known = [one.broker for one in admin.brokers()]
            if broker not in known:
                raise NoRoute(f"there is no broker {broker!r}; there are {', '.join(known)}")
        if not frozen:
            click.echo("no clock has jumped forward: delayed messages are delivered", err=True)


@click.group()
def transaction() -> None:
    """Look at transactions without an outcome, and decide them."""


@transaction.command("list")
@click.option("--parked", is_flag=True, help="Only those that wait for an operator.")
@json_option
@click.pass_obj
def list_transactions(server: str, parked: bool, as_json: bool) -> None:
    """List the halves of transactions that wait for their outcome, the oldest first.

    Producers of the group are asked again and again. A half that got no outcome by then is parked: it waits for
    `commit`, `rollback` or `check`.

    \b
    Examples:
      penstock transaction list
      penstock transaction list --parked --json
    """
    with Admin(server) as admin:
        rows = [_half(one) for one in admin.transactions() if one.parked or not parked]
    columns = ("id", "broker", "group", "began", "checks", "topic", "key", "messages", "parked")
    print_rows(rows, columns, as_json=as_json, empty="no transactions without an outcome")


def _half(one: Transaction) -> dict[str, Any]:
    return {
        "id": str(one.id),
        "broker": one.broker,
        "group": one.group,
        "began": shown_time(one.born_ms),
        "checks": one.checks,
        "topic": one.topic or None,
        "key": one.key or None,
        "messages": one.messages,
        "bytes": one.size,
        "parked": one.parked or None,
    }


@transaction.command()
@click.argument("id", type=int)
@broker_option
@click.pass_obj
def commit(server: str, id: int, broker: str) -> None:
    """Commit a half: its message is delivered."""
    with Admin(server) as admin:
        admin.commit(broker, id)
    click.echo(f"committed {id}")


@transaction.command()
@click.argument("id", type=int)
@broker_option
@yes_option
@click.pass_obj
def rollback(server: str, id: int, broker: str, yes: bool) -> None:
    """Roll a half back: its message is never delivered."""
    if not yes:
        confirm(f"The message of half {id} will be gone. Roll it back?", f"half {id} stays")
    with Admin(server) as admin:
        admin.rollback(broker, id)
    click.echo(f"rolled back {id}")


@transaction.command()
@click.argument("id", type=int)
@broker_option
@click.pass_obj
def check(server: str, id: int, broker: str) -> None:
    """Have producers of the group asked about a half again."""
    with Admin(server) as admin:
        admin.check(broker, id)
    click.echo(f"producers are asked about {id} again")


@click.group()
def dlq() -> None:
    """Look at dead letters, and send them again."""


@dlq.command("list")
@json_option
@click.pass_obj
def list_letters(server: str, as_json: bool) -> None:
    """List which groups have dead letters, and how many were not sent again yet.

    \b
    Examples:
      penstock dlq list
    """
    with Admin(server) as admin:
        rows = [
            {"group": one.group, "broker": one.broker, "letters": one.letters, "waiting": one.waiting}
            for one in admin.dead_letters()
        ]
    print_rows(rows, ("group", "broker", "letters", "waiting"), as_json=as_json, empty="no dead letters")


@dlq.command()
@click.argument("group")
@click.option("--count", default=20, type=click.IntRange(min=1), help="Maximum number of letters of each broker.")
@json_option
@click.pass_obj
def show(server: str, group: str, count: int, as_json: bool) -> None:
    """Show the latest dead letters of a group, with where they come from and why they are here.

    \b
    Examples:
      penstock dlq show billing
      penstock dlq show billing --count 1 --json | jq -r .body
    """
    with Admin(server) as admin:
        rows = [_letter(one, as_json) for one in admin.letters_of(group, count)]
    columns = ("offset", "broker", "stored", "origin", "attempts", "reason", "key", "body")
    print_rows(rows, columns, as_json=as_json, empty="no dead letters")


def _letter(one: DeadLetter, as_json: bool) -> dict[str, Any]:
    message = one.message
    body, encoding = body_text(message.body)
    key = message.key if isinstance(message.key, str) else message.key.hex()
    row: dict[str, Any] = {
        "offset": message.offset,
        "broker": message.queue.broker,
        "stored": shown_time(message.stored_ms),
        "origin": one.origin,
        "attempts": one.attempts,
        "reason": one.reason or None,
        "key": key or None,
        "body": body if as_json else line_text(message.body, _SHOWN),
    }
    return row | {"encoding": encoding, "id": message.id, "properties": dict(message.properties)} if as_json else row


@dlq.command()
@click.argument("group")
@click.option("--to", default="", metavar="TOPIC", help="Send all to this topic, where all groups get them.")
@click.option("--all-groups", is_flag=True, help="Send each to the topic that it came from, where all groups get it.")
@click.option("--again", is_flag=True, help="Also those that were sent again before.")
@yes_option
@json_option
@click.pass_obj
def redrive(server: str, group: str, to: str, all_groups: bool, again: bool, yes: bool, as_json: bool) -> None:
    """Send the dead letters of a group to it again, and to no other group: each at least once, with all its attempts
    before it, and with a result for each.

    \b
    Examples:
      penstock dlq redrive billing
      penstock dlq redrive billing --all-groups
      penstock dlq redrive billing --to billing-test --yes
    """
    with Admin(server) as admin:
        if not yes:
            known = [one for one in admin.dead_letters() if one.group == group]
            if not known:
                raise TopicNotFound(f"group {group!r} has no dead letters", hint="`penstock dlq list` names others")
            count = sum([one.letters if again else one.waiting for one in known])
            origins = "to the topics that they came from" if all_groups else "to this group again"
            where = f"to {to!r}" if to else origins
            confirm(f"{count:,} dead letters of {group!r} will be sent {where}. Go on?", "no dead letter is sent")
        done = admin.redrive(group, to, again=again, all_groups=all_groups)
    rows = [
        {
            "offset": one.letter.message.offset,
            "broker": one.letter.message.queue.broker,
            "topic": one.topic,
            "result": "sent" if one.error is None else str(one.error),
        }
        for one in done
    ]
    print_rows(rows, ("offset", "broker", "topic", "result"), as_json=as_json, empty="nothing waits to be sent again")
    failed: list[PenstockError] = [one.error for one in done if one.error is not None]
    if failed:
        raise failed[0]
