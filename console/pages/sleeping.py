"""Pages of waiting messages: transactions without an outcome, and delayed messages."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from console import markup
from console.visits import PAGE_ROWS, Visit, number_of
from penstock.client.administration import DelayedMessage, Transaction
from penstock.errors import InvalidRequest

PATH: Final = "/sleeping"
HALVES_SHOWN: Final = 200


async def sleeping(visit: Visit) -> Response:
    """Transactions, and a page of delayed messages."""
    after = (visit.ask_number("due", 0), visit.ask_number("after", 0))
    reads = visit.cluster.reads
    halves, delayed = await reads.transactions(), await reads.delayed_page(after, PAGE_ROWS)
    frozen = [
        Markup('<p class="failed" role="alert">{}</p>').format(
            f"{one.broker}: the clock has jumped by {one.ahead_s:.0f} s, and no delayed message fires until it is "
            "right again, or `penstock timer confirm-clock` says that it is."
        )
        for one in await reads.frozen_clocks()
    ]
    return visit.page(
        "Transactions and timers",
        markup.section(f"Transactions without an outcome: {len(halves):,}", _halves(visit, halves[:HALVES_SHOWN])),
        markup.section(
            f"Delayed messages: {delayed.count:,}",
            *frozen,
            _delayed(visit, delayed.rows),
            markup.pager(
                PATH if after != (0, 0) else "",
                markup.address(PATH, due=delayed.after[0], after=delayed.after[1]) if delayed.after != (0, 0) else "",
            ),
        ),
        path=PATH,
    )


def _halves(visit: Visit, halves: list[Transaction]) -> Markup:
    rows = []
    for one in halves:
        name = {"broker": one.broker, "id": str(one.id)}
        actions = [
            visit.action("/sleeping/end", text, name | {"how": how}, kind=kind)
            for how, text, kind in (
                ("commit", "Commit", ""),
                ("rollback", "Roll back", "danger"),
                ("check", "Ask again", ""),
            )
        ]
        rows.append(
            (
                f"{one.id}@{one.broker}",
                one.group,
                markup.moment(one.born_ms),
                one.topic,
                one.messages,
                one.checks,
                one.parked or "producers are asked",
                Markup('<div class="actions">{}</div>').format(markup.joined(actions)),
            )
        )
    columns = ("Transaction", "Group", "Begun", "Topic", "Messages#", "Asked#", "Waits for", "Decide")
    return markup.table("Transactions", columns, rows, empty="There are none.")


def _delayed(visit: Visit, delayed: tuple[DelayedMessage, ...]) -> Markup:
    rows = [
        (
            f"{one.id}@{one.broker}",
            markup.moment(one.due_ms),
            "damaged" if one.damaged else one.topic,
            one.key,
            one.size,
            visit.action(
                "/sleeping/cancel",
                "Cancel",
                {"broker": one.broker, "id": str(one.id), "due": str(one.due_ms)},
                kind="danger",
            ),
        )
        for one in delayed
    ]
    columns = ("Message", "Due", "Topic", "Key", "Size#", "Cancel")
    return markup.table("Delayed messages", columns, rows, empty="There are none.")


async def end(visit: Visit) -> Response:
    """Decides a transaction, or has its producers asked again."""
    broker, id, how = visit.ask("broker"), number_of("id", visit.ask("id"), -1), visit.ask("how")
    acts = visit.cluster.acts
    ways = {"commit": acts.commit, "rollback": acts.rollback, "check": acts.check}
    if how not in ways:
        raise InvalidRequest("a transaction is committed, rolled back or asked about")
    await ways[how](broker, id)
    done = {"commit": "was committed", "rollback": "was rolled back", "check": "is asked about again"}[how]
    return visit.done(f"Transaction {id} at {broker} {done}.", PATH)


async def cancel(visit: Visit) -> Response:
    """Cancels a delayed message."""
    broker, id = visit.ask("broker"), number_of("id", visit.ask("id"), -1)
    await visit.cluster.acts.cancel(broker, id, number_of("due", visit.ask("due"), 0))
    return visit.done(f"The delayed message {id} at {broker} was cancelled.", PATH)
