"""Messages: browsed by place or time, found by key or id, shown one by one, published."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from console import markup, payloads
from console.visits import Visit, number_of, time_of
from penstock.client.arguments import Place
from penstock.client.message_tasks import offset_id
from penstock.errors import InvalidRequest
from penstock.protocol.message import Message
from penstock.protocol.received import MessageQueue, ReceivedMessage, queue_named

PATH: Final = "/messages"
SHOWN: Final = 20
FOUND_MAX: Final = 50
COLUMNS: Final = ("Message", "Stored", "Queue", "Key", "Size#", "Payload")


async def messages(visit: Visit) -> Response:
    """Messages of a topic: those from a place on, or those with a key or id."""
    topic, key, id = visit.ask("topic"), visit.ask("key"), visit.ask("id")
    if id:
        return await message(visit)
    parts = [_form(visit)]
    if topic:
        visit.check_reading(topic)
    if topic and key:
        since: datetime | int = time_of("time", visit.ask("time")) if visit.ask("time") else 0
        found = await visit.cluster.find(topic, key, since, FOUND_MAX)
        parts.append(_table(f"Messages of {topic} with {key}, the newest first", found))
    elif topic:
        parts.append(await _browsed(visit, topic))
    else:
        parts.append(Markup('<p class="empty">Choose a topic, or give a message\'s id.</p>'))
    return visit.page("Messages", *parts, path=PATH)


def _form(visit: Visit) -> Markup:
    fields = [
        markup.field("Topic", "topic", visit.ask("topic")),
        markup.field("From offset", "offset", visit.ask("offset"), hint="a number, earliest or latest"),
        markup.field("From time (UTC)", "time", visit.ask("time"), kind="datetime-local", more='step="1"'),
        markup.field("Key or unique id", "key", visit.ask("key")),
        markup.field("Offset id", "id", visit.ask("id"), hint="as broker-a:40213"),
    ]
    return markup.search(PATH, fields, "Show", {"queue": visit.ask("queue")})


async def _browsed(visit: Visit, topic: str) -> Markup:
    """Messages from a place on, of one queue or of each."""
    at = _place(visit)
    queues = await _queues(visit, topic)
    wanted = visit.ask("queue")
    chosen = [one for one in queues if queue_text(one) == wanted] if wanted else queues
    if wanted and not chosen:
        raise InvalidRequest(f"topic {topic} has no queue {wanted}")
    found: list[ReceivedMessage] = []
    following, first = -1, -1
    for queue in chosen:
        some, following, bounds = await visit.cluster.reads.browse(queue, at, SHOWN)
        first = bounds.min
        found += some
    newest = sorted(found, key=lambda one: (-one.stored_ms, str(one.queue), -one.offset))
    parts = [_table(f"Messages of {topic}, the newest first", newest[: SHOWN * 5])]
    links = [markup.link("All queues", PATH, topic=topic)] if wanted else []
    links += [
        markup.link(f"{one.number}@{one.broker}", PATH, topic=topic, queue=queue_text(one)) for one in queues[:64]
    ]
    parts.insert(0, Markup('<p class="links">Queues: {}</p>').format(Markup(" ").join(links)))
    if wanted:
        lowest = found[0].offset if found else following
        earlier = markup.address(PATH, topic=topic, queue=wanted, offset=max(first, lowest - SHOWN))
        later = markup.address(PATH, topic=topic, queue=wanted, offset=following)
        parts.append(
            Markup(
                '<nav class="pager" aria-label="Pages"><a href="{}">Earlier</a> <a href="{}">Later</a></nav>'
            ).format(earlier, later)
        )
    return markup.joined(parts)


def _place(visit: Visit) -> Place:
    if visit.ask("time"):
        return time_of("time", visit.ask("time"))
    text = visit.ask("offset", "latest").strip() or "latest"
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    return number_of("offset", text, 0)


async def _queues(visit: Visit, topic: str) -> list[MessageQueue]:
    return [
        queue_named(one.broker, bound.queue) for one in await visit.cluster.reads.topic(topic) for bound in one.bounds
    ]


def _table(caption: str, found: list[ReceivedMessage]) -> Markup:
    return markup.table(caption, COLUMNS, [_row(one) for one in found], empty="There are no messages.")


def _row(one: ReceivedMessage) -> tuple[markup.Cell, ...]:
    return (
        markup.link(f"{one.offset:,}", "/message", id=offset_id(one)),
        markup.moment(one.stored_ms),
        str(one.queue),
        key_text(one),
        len(one.body),
        Markup("<code>{}</code>").format(payloads.summary(one.body)),
    )


def queue_text(queue: MessageQueue) -> str:
    """A queue as the addresses of pages have it."""
    return f"{queue.broker}/{queue.number}"


def key_text(one: ReceivedMessage) -> str:
    """A message's key as text."""
    return one.key if isinstance(one.key, str) else one.key.hex(" ")


async def message(visit: Visit) -> Response:
    """One message, by its offset id."""
    one = await visit.cluster.reads.message(visit.ask("id"))
    visit.check_reading(one.queue.topic)
    id, form = offset_id(one), visit.ask("as", "auto")
    try:
        form, text = payloads.shown(one.body, form)
        body = Markup('<pre class="payload" tabindex="0">{}</pre>').format(text)
    except payloads.Unreadable as error:
        body = Markup('<p class="failed" role="alert">{}</p>').format(str(error))
    forms = [
        Markup('<a href="{}"{}>{}</a>').format(
            markup.address("/message", id=id, as_=other), Markup(' aria-current="true"' if other == form else ""), other
        )
        for other in payloads.FORMS[1:]
    ]
    properties = markup.table("Properties", ("Property", "Value"), list(one.properties.items()), empty="none")
    return visit.page(
        f"Message {id}",
        _facts(one),
        markup.section(
            "Payload",
            Markup('<nav class="forms" aria-label="Form of the payload">{}</nav>').format(Markup(" ").join(forms)),
            body,
        ),
        markup.section("Properties", properties),
        markup.section("Trace", await _trace(visit, one)),
        path=PATH,
    )


def _facts(one: ReceivedMessage) -> Markup:
    place = queue_text(one.queue)
    return markup.facts(
        [
            ("Topic", markup.link(one.queue.topic, "/topic", name=one.queue.topic)),
            ("MQTT name", one.name),
            ("Queue", markup.link(str(one.queue), PATH, topic=one.queue.topic, queue=place, offset=one.offset)),
            ("Offset", one.offset),
            ("Key", key_text(one)),
            ("Tag", one.tag),
            ("Unique id", one.id),
            ("Sent", markup.moment(one.born_ms)),
            ("Stored", markup.moment(one.stored_ms)),
            ("QoS", one.qos),
            ("Retained", "yes" if one.retain else "no"),
            ("Attempts", one.attempts),
            ("Size", markup.size(len(one.body))),
        ]
    )


async def _trace(visit: Visit, one: ReceivedMessage) -> Markup:
    """The trace of a message, in the order of events."""
    rows = await visit.cluster.reads.trace(one.id or offset_id(one))
    events = [
        (
            markup.moment(row.time_ms),
            row.event,
            row.who,
            f"{row.queue}@{row.broker}" if row.queue else row.broker,
            ", ".join([f"{name} {value}" for name, value in row.more.items()]),
        )
        for row in rows
    ]
    return markup.table(
        "What became of it",
        ("When", "What", "Who", "Where", "More"),
        events,
        empty="It was not traced. A topic's page turns tracing on for messages to come.",
    )


async def publish(visit: Visit) -> Response:
    """The form of a message."""
    form = visit.action(
        "/publish",
        "Publish",
        {},
        markup.field("Topic", "topic", visit.ask("topic"), more="required"),
        markup.field("MQTT name", "mqtt_topic", hint="empty: the topic"),
        markup.field("Key", "key"),
        markup.field("Tag", "tag"),
        Markup('<label>Payload <textarea name="body" rows="8" spellcheck="false"></textarea></label>'),
        markup.choice("Payload is", "form", (("text", "text"), ("hex", "hex")), "text"),
        Markup('<label><input type="checkbox" name="retain" value="yes"> Retain it for its MQTT name</label>'),
    )
    return visit.page("Publish a message", form or Markup("<p>Administrators publish.</p>"), path=PATH)


async def send(visit: Visit) -> Response:
    """Stores a message."""
    body = visit.ask("body").replace("\r\n", "\n").encode()
    if visit.ask("form") == "hex":
        try:
            body = bytes.fromhex(visit.ask("body"))
        except ValueError:
            raise InvalidRequest("the payload is no hex: it is pairs of 0-9 and a-f") from None
    topic, key, tag, name = (visit.ask(one) for one in ("topic", "key", "tag", "mqtt_topic"))
    message = Message(topic, body, key=key, tag=tag, mqtt_topic=name, retain=visit.ask("retain") == "yes")
    sent = await visit.cluster.publish(message)
    said = f"Stored in {sent.queue} at offset {sent.offset:,}, level {sent.level}."
    return visit.done(said, PATH, topic=sent.queue.topic, queue=queue_text(sent.queue), offset=sent.offset)
