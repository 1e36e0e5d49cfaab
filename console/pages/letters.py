"""Dead letters: messages that a group failed to process; shown, and sent again."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from console import markup, payloads
from console.pages.messages import key_text
from console.visits import Visit
from penstock.access.acl import GROUP
from penstock.client.administration import DeadLetter, Redriven
from penstock.client.message_tasks import offset_id
from penstock.errors import PenstockError

PATH: Final = "/letters"
SHOWN: Final = 100
FAILURES_SHOWN: Final = 20


async def letters(visit: Visit) -> Response:
    """The groups that have some."""
    found = await visit.cluster.reads.dead_letters()
    rows = [
        (markup.link(one.group, "/letters/of", group=one.group), one.broker, one.letters, one.waiting) for one in found
    ]
    columns = ("Group", "Broker", "Dead letters#", "Not sent again#")
    return visit.page("Dead letters", markup.table("By group", columns, rows, empty="There are none."), path=PATH)


async def letters_of(visit: Visit) -> Response:
    """The latest dead letters of a group."""
    group = visit.ask("group")
    visit.check(GROUP, group)
    found = await visit.cluster.reads.letters_of(group, SHOWN)
    redrive = visit.action(
        "/letters/redrive",
        "Send all that were not sent again",
        {"group": group},
        markup.field("To the topic", "to", hint="empty: back to the group alone"),
    )
    rows = [_row(one) for one in reversed(found)]
    columns = ("Message", "Stored", "Came from", "Key", "Attempts#", "Why", "Payload")
    return visit.page(
        f"Dead letters of {group}",
        Markup("<p>{}</p>").format("The latest ones of each broker, the newest first."),
        redrive,
        markup.table(f"Dead letters of {group}", columns, rows, empty="There are none."),
        path=PATH,
    )


def _row(one: DeadLetter) -> tuple[markup.Cell, ...]:
    message = one.message
    return (
        markup.link(f"{message.offset:,}@{message.queue.broker}", "/message", id=offset_id(message)),
        markup.moment(message.stored_ms),
        one.origin,
        key_text(message),
        one.attempts,
        one.reason,
        Markup("<code>{}</code>").format(payloads.summary(message.body)),
    )


async def redrive(visit: Visit) -> Response:
    """Sends a group's dead letters again, and says of each that failed why."""
    group = visit.ask("group")
    done = await visit.cluster.acts.redrive(group, visit.ask("to").strip())
    failed = [(one, one.error) for one in done if one.error is not None]
    sent = len(done) - len(failed)
    if not failed:
        return visit.done(f"{sent:,} dead letters of {group} were sent again.", "/letters/of", group=group)
    state = "PARTIAL" if sent else "FAILED"
    told = f"{sent:,} were sent again. {len(failed):,} failed; the rest of those brokers waits for the next time."
    return visit.page(
        f"{state}: dead letters of {group}",
        Markup('<p class="failed" role="alert">{}</p>').format(told),
        _failures(failed[:FAILURES_SHOWN]),
        Markup('<p class="links">{}</p>').format(markup.link("Back", "/letters/of", group=group)),
        path=PATH,
    )


def _failures(failed: list[tuple[Redriven, PenstockError]]) -> Markup:
    rows = [(offset_id(one.letter.message), one.topic, error.message, error.hint) for one, error in failed]
    return markup.table("What failed", ("Message", "To topic", "Why", "What to do"), rows)
