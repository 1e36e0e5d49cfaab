"""Tasks at the broker that keeps the configuration: read the current facts, and store one. Pure; carried out like those
of ``penstock/client/administration.py``.
"""

from __future__ import annotations

from typing import NamedTuple

from events.facts import ALL, TOPIC, StoredFact
from penstock.client.administration import Ask, Task, broker_named
from penstock.errors import NoRoute, from_wire
from penstock.protocol.message import decode_batch
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.filters import FetchRetained, RetainedPage
from penstock.protocol.requests.messages import Append, Appended
from penstock.protocol.requests.topics import DescribeTopic, TopicDetail


class StandingFacts(NamedTuple):
    """The facts that stand. ``offset``: where a reader of the topic's queue continues; some later messages may be among
    the facts already."""

    offset: int
    facts: list[StoredFact]


def stored_of(message: ReceivedMessage) -> StoredFact:
    """A fact's message as the fold takes it."""
    return StoredFact(message.position, message.mqtt_topic, message.body, message.stored_ms)


def standing(broker: str) -> Task[StandingFacts]:
    """The facts that stand at a broker."""
    route = yield from broker_named(broker, NoRoute)
    detail: TopicDetail = yield Ask(route.address, DescribeTopic(TOPIC), TopicDetail)
    found: list[StoredFact] = []
    after = ""
    while True:
        page: RetainedPage = yield Ask(route.address, FetchRetained(ALL, after), RetainedPage)
        found += [stored_of(message) for _, message in decode_batch(page.count, page.body)]
        after = page.after
        if not after:
            return StandingFacts(detail.bounds[0].end, found)


def store(broker: str, record: bytes) -> Task[int]:
    """Stores a fact; returns its log position. Raises ``RetainedChanged`` where another one stands than it replaces."""
    route = yield from broker_named(broker, NoRoute)
    answer: Appended = yield Ask(route.address, Append(1, True, record), Appended)
    for one in answer.refused:
        raise from_wire(one.code, one.message)
    return answer.placed[0].position
