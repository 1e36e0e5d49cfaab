"""Administration of retained messages, the last values of MQTT names, a page at a time. Pure; tasks as in
``administration.py``."""

from __future__ import annotations

from typing import Final

from penstock.client.administration import ALL_BROKERS, Ask, Task
from penstock.client.arguments import check_integer, check_text
from penstock.client.page_tasks import is_within
from penstock.errors import InvalidRequest
from penstock.protocol.message import decode_batch
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.filters import FetchRetained, RetainedPage
from penstock.values import value

COUNT_MAX: Final = 1_000


@value
class RetainedOnPage:
    """Retained messages, in the order of their names, and the name that continues them; empty at the end. Their offsets
    say nothing; ``name`` and ``position`` do."""

    messages: tuple[ReceivedMessage, ...]
    after: str


def retained_page(filter: str = "#", after: str = "", count: int = 50) -> Task[RetainedOnPage]:
    """Retained messages of all brokers whose MQTT names a filter matches.

    Args:
        filter: of MQTT.
        after: names behind this one; the ``after`` of the page before.
        count: maximum number of messages. A page may have fewer although others follow.

    Raises ``InvalidRequest``, and ``InvalidFilter`` for what is no filter.
    """
    check_text("filter", filter)
    check_integer("count", count)
    if not 0 < count <= COUNT_MAX:
        raise InvalidRequest(f"a page has 1 to {COUNT_MAX:,} retained messages, not {count}")
    found: list[ReceivedMessage] = []
    ends: list[str] = []
    for route in (yield ALL_BROKERS):
        page: RetainedPage = yield Ask(route.address, FetchRetained(filter, after, count), RetainedPage)
        for _, message in decode_batch(page.count, page.body):
            message.queue = message.queue._replace(broker=route.broker)
            found.append(message)
        ends += [page.after] if page.after else []
    found = sorted([one for one in found if is_within(one.name, ends)], key=lambda one: one.name)
    shown = found[:count]
    if len(found) > count:
        return RetainedOnPage(tuple(shown), shown[-1].name)
    return RetainedOnPage(tuple(shown), min(ends, default=""))
