"""Retained messages: the last values of MQTT names, by filter."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from console import markup, payloads
from console.visits import PAGE_ROWS, Visit
from penstock.access.acl import CONSUME
from penstock.client.message_tasks import offset_id

PATH: Final = "/retained"
COLUMNS: Final = ("Name", "Stored", "Size#", "Payload")


async def retained(visit: Visit) -> Response:
    """A page of those whose names a filter matches."""
    visit.check(CONSUME)
    filter, after = visit.ask("filter").strip() or "#", visit.ask("after")
    page = await visit.cluster.reads.retained_page(filter, after, PAGE_ROWS)
    rows = [
        (
            markup.link(one.name, "/message", id=offset_id(one)),
            markup.moment(one.stored_ms),
            len(one.body),
            Markup("<code>{}</code>").format(payloads.summary(one.body)),
        )
        for one in page.messages
    ]
    following = markup.address(PATH, filter=filter, after=page.after) if page.after else ""
    return visit.page(
        "Retained messages",
        markup.search(PATH, [markup.field("Filter", "filter", filter, hint="as sensors/+/temperature")], "Show"),
        markup.table(f"Retained messages of {filter}", COLUMNS, rows, empty="No name has one."),
        markup.pager(markup.address(PATH, filter=filter) if after else "", following),
        path=PATH,
    )
