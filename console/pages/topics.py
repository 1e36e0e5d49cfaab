"""Topics: their messages, configuration and queues; live."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from console import markup
from console.pages.messages import queue_text
from console.visits import PAGE_ROWS, Visit
from penstock.client.page_tasks import TopicRow, TopicsPage
from penstock.client.topic_tasks import TopicAt
from penstock.protocol.received import queue_named

COLUMNS: Final = (
    *("Topic", "Messages#", "Per second#", "Size, about#", "Ever stored#"),
    *("Queues#", "Level", "Kept for", "Clients may", "Brokers#"),
)
PATH: Final = "/topics"


async def topics(visit: Visit) -> Response:
    """A page of topics."""
    after, contains = visit.ask("after"), visit.ask("contains")
    page = await visit.cluster.reads.topics_page(after, PAGE_ROWS, contains)
    create = visit.action(
        "/topics/create",
        "Create topic",
        {},
        markup.field("Name", "name", more="required"),
        markup.field("Queues per broker", "queues", kind="number", more='min="1" max="1024"'),
    )
    return visit.page(
        "Topics",
        markup.listing(PATH, "a part of a topic's name", contains, after, page.after, _table(visit, page)),
        Markup("<details><summary>Create a topic</summary>{}</details>").format(create) if create else Markup(""),
        path=PATH,
    )


async def live(visit: Visit) -> Response:
    """The rows, which are fetched again and again."""
    after, contains = visit.ask("after"), visit.ask("contains")
    return visit.part(_table(visit, await visit.cluster.reads.topics_page(after, PAGE_ROWS, contains)))


def _table(visit: Visit, page: TopicsPage) -> Markup:
    rows = [_row(one, visit.watch.topic_rate(one.topic, one.stored)) for one in page.rows]
    return markup.table("Topics", COLUMNS, rows, empty="No topic has such a name.")


def _row(row: TopicRow, rate: float | None) -> tuple[markup.Cell, ...]:
    queues = sum([one.queues for one in row.at])
    return (
        markup.link(row.name, "/topic", name=row.topic),
        row.messages,
        markup.number(rate),
        markup.size(row.size),
        row.stored,
        queues,
        _one_of([one.level for one in row.at]),
        _one_of([_kept(one) for one in row.at]),
        _one_of([_access(one) for one in row.at]),
        len(row.at),
    )


def _one_of(values: list[str]) -> str:
    """A value of a topic that brokers agree on; ``differs`` if they do not."""
    return values[0] if len(set(values)) == 1 else "differs" if values else ""


def _kept(at: TopicAt) -> str:
    return markup.duration(at.retention_s) if at.retention_s else "as the broker"


def _access(at: TopicAt) -> str:
    return {"rw": "read, write", "r": "read", "w": "write", "none": "nothing"}.get(at.access, at.access)


async def topic(visit: Visit) -> Response:
    """One topic."""
    name = visit.ask("name")
    found = await visit.cluster.reads.topic(name)
    topic = found[0].topic
    hidden = {"name": topic}
    changes = visit.action(
        "/topics/change",
        "Change",
        hidden,
        markup.field(
            "Kept for seconds", "retention_s", str(found[0].retention_s), kind="number", hint="0: as the broker"
        ),
        markup.field("Queues per broker", "queues", str(found[0].queues), kind="number"),
        markup.field("Trace one message in", "trace_every", str(found[0].trace_every), kind="number", hint="0: none"),
    )
    purge = visit.action("/topics/purge", "Remove all messages", hidden, kind="danger")
    delete = visit.action("/topics/delete", "Delete topic", hidden, kind="danger")
    dangers = markup.joined(
        [
            Markup("<details><summary>Change</summary>{}</details>").format(changes),
            markup.asked("Remove its messages …", f"All messages of {name} are removed, for good.", purge),
            markup.asked("Delete it …", f"{name}, its messages and its groups' offsets are removed, for good.", delete),
        ]
    )
    return visit.page(
        found[0].name,
        _facts(found),
        markup.live(markup.address("/topic/live", name=topic), _queues(found), every_s=3),
        Markup('<p class="links">{} {}</p>').format(
            markup.link("Browse its messages", "/messages", topic=topic),
            markup.link("Publish a message", "/publish", topic=topic) if visit.may_act else "",
        ),
        markup.section("Change", dangers) if visit.may_act else Markup(""),
        path=PATH,
    )


async def topic_live(visit: Visit) -> Response:
    """Its queues, which are fetched again and again."""
    return visit.part(_queues(await visit.cluster.reads.topic(visit.ask("name"))))


def _facts(found: list[TopicAt]) -> Markup:
    first = found[0]
    return markup.facts(
        [
            ("Topic", first.topic),
            ("Level", _one_of([one.level for one in found])),
            ("Kept for", _one_of([_kept(one) for one in found])),
            ("Clients may", _one_of([_access(one) for one in found])),
            ("Traced", f"one in {first.trace_every:,}" if first.trace_every else "no"),
            ("Retained messages", sum([one.retained for one in found])),
        ]
    )


def _queues(found: list[TopicAt]) -> Markup:
    rows = [
        (
            markup.link(f"{bound.queue}@{queue.broker}", "/messages", topic=queue.topic, queue=queue_text(queue)),
            bound.min,
            bound.end,
            bound.end - bound.min,
        )
        for one in found
        for bound in one.bounds
        for queue in [queue_named(one.broker, bound.queue)]
    ]
    return markup.section("Queues", markup.table("Queues", ("Queue", "First#", "End#", "Messages#"), rows))


async def create(visit: Visit) -> Response:
    """Creates a topic."""
    name = visit.ask("name")
    await visit.cluster.acts.create_topic(name, queues=visit.ask_number("queues", 0))
    return visit.done(f"The topic {name} is there.", "/topic", name=name)


async def change(visit: Visit) -> Response:
    """Changes a topic at all brokers."""
    name = visit.ask("name")
    await visit.cluster.acts.change_topic(
        name,
        retention_s=visit.ask_number("retention_s", -1),
        queues=visit.ask_number("queues", 0),
        trace_every=visit.ask_number("trace_every", -1),
    )
    return visit.done(f"The topic {name} was changed.", "/topic", name=name)


async def purge(visit: Visit) -> Response:
    """Removes all messages of a topic."""
    name = visit.ask("name")
    removed = await visit.cluster.acts.purge_topic(name)
    return visit.done(f"{sum(removed.values()):,} messages of {name} were removed.", "/topic", name=name)


async def delete(visit: Visit) -> Response:
    """Deletes a topic."""
    name = visit.ask("name")
    removed = await visit.cluster.acts.delete_topic(name)
    return visit.done(f"The topic {name} was deleted with {sum(removed.values()):,} messages.", PATH)
