"""Stored messages as events: one that was stored as an event, one of MQTT's CloudEvents binding, or one that a source
maps.

A source names a topic and has templates over client, name, key, tag and paths of the payload for the events' source,
type and subject. So telemetry becomes events without code. The id of a mapped event is the place of its message in the
log, which stays the same in every retry. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from events.cloudevents import (
    JSON,
    REQUIRED,
    STRUCTURED,
    Event,
    check,
    from_document,
    from_properties,
    is_media_type,
    loads,
    media_type,
)
from events.exact import Origin
from events.fields import known
from events.problems import Problem, invalid_config
from events.transform import Template, Variables
from penstock.protocol.answers import CONTENT_TYPE, USER_PROPERTY, strings_in
from penstock.protocol.message import CLIENT_ID, MQTT_PROPERTIES
from penstock.protocol.properties import ORIGIN_NAME
from penstock.protocol.received import ReceivedMessage
from topicmap.names import InvalidName
from topicmap.queues import EVENTS_TOPIC, topic_named

NAMES: Final = ("client", "name", "topic", "key", "tag")
FIELDS: Final = ("topic", "source", "type", "subject", "content_type", "variables")


class Source:
    """A compiled source mapping. Raises ``Problem``.

    Attributes:
        topic: whose messages it maps, as it is stored.
    """

    def __init__(self, given: object) -> None:
        spec = known(given, "source", *FIELDS)
        self._variables = Variables(spec)
        self._templates: dict[str, Template] = {}
        for name, usual in (("source", "/devices/${client}"), ("type", "mqtt.publish"), ("subject", "${name}")):
            self._templates[name] = Template(spec.get(name, usual), (*NAMES, *self._variables.names), as_json=False)
        try:
            self.topic = topic_named(spec["topic"])
        except (KeyError, TypeError, InvalidName, AttributeError):
            raise invalid_config("a source names the topic whose messages it maps", "/topic") from None
        if self.topic == EVENTS_TOPIC:
            raise invalid_config("the configuration of event bridges is no event", "/topic")
        content_type = spec.get("content_type", JSON)
        if not isinstance(content_type, str) or not is_media_type(content_type) or len(content_type) > 256:
            raise invalid_config(f"{content_type!r:.60} is no media type", "/content_type")
        self._content_type = content_type

    def event_of(self, message: ReceivedMessage, topic: str, content_type: str = "") -> Event | None:
        """The event that a message of a topic is; None where what the templates make of it is none."""
        key = message.key if isinstance(message.key, str) else ""
        client = message.properties.get(CLIENT_ID, "") or key
        name = message.mqtt_topic or message.properties.get(ORIGIN_NAME, "") or topic
        values: dict[str, Any] = {"client": client, "name": name}
        values |= {"topic": topic, "key": key, "tag": message.tag}
        attributes = {"specversion": "1.0", "id": place_of(message), "time": _time_of(message.born_ms)}
        attributes["datacontenttype"] = content_type if is_media_type(content_type) else self._content_type
        event = Event(attributes, message.body)
        if self._variables.names:
            values |= self._variables.values({"data": event.value})
        for name, template in self._templates.items():
            text = template.fill(values).decode("utf-8", "replace")
            if text or name != "subject":
                attributes[name] = text.replace(" ", "%20") if name == "source" else text
        try:
            return check(event)
        except Problem:
            return None


def origin_of(message: ReceivedMessage) -> Origin:
    """The place where the message was stored first: its name for ever, also in a retry."""
    properties = message.properties
    queue, offset = properties.get("ORIGIN_QUEUE"), properties.get("ORIGIN_OFFSET", "")
    if not queue or not offset.isdigit():
        queue, offset = message.queue.name, str(message.offset)
    return Origin(message.queue.broker, queue, int(offset))


def place_of(message: ReceivedMessage) -> str:
    """The same as text."""
    origin = origin_of(message)
    return f"{origin.broker}/{origin.queue}/{origin.offset}"


def _time_of(born_ms: int) -> str:
    try:
        return datetime.fromtimestamp(born_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00Z"


class Reading:
    """The reading of messages of a bus and its sources' topics as events."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = {source.topic: source for source in sources}

    def event_of(self, message: ReceivedMessage, origin: str = "") -> Event | None:
        """The event that a message is; None where it is none. ``origin``: the topic that a dead letter was in."""
        properties = message.properties
        stored = from_properties(properties, message.body)
        if stored is not None:
            return stored
        content_type = ""
        if MQTT_PROPERTIES in properties:
            content_type, user = mqtt_properties(properties[MQTT_PROPERTIES])
            bound = from_mqtt(content_type, user, message.body)
            if bound is not None:
                return bound
        topic = origin or message.topic
        source = self._sources.get(topic)
        return source.event_of(message, topic, content_type) if source is not None else None


def from_mqtt(content_type: str, user: Sequence[tuple[str, str]], payload: bytes) -> Event | None:
    """An event of MQTT 5's binding (binary: attributes in user properties; structured: a content type that says so);
    None where it is none."""
    try:
        if media_type(content_type) == STRUCTURED:
            return from_document(loads(payload))
        attributes = {name: value for name, value in user if name != "datacontenttype"}
        if not attributes.keys() >= set(REQUIRED):
            return None
        if content_type:
            attributes["datacontenttype"] = content_type
        return check(Event(attributes, payload if payload or content_type else None))
    except Problem:
        return None


def mqtt_properties(packed: str) -> tuple[str, list[tuple[str, str]]]:
    """Content type and user properties, as gateways keep them with a message. Total."""
    content_type, user = "", list[tuple[str, str]]()
    for identifier, strings in strings_in(packed):
        texts = [one.decode("utf-8", "replace") for one in strings]
        if identifier == CONTENT_TYPE:
            content_type = texts[0]
        elif identifier == USER_PROPERTY:
            user.append((texts[0], texts[1]))
    return content_type, user
