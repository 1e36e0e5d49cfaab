"""Delivers events to an HTTP API, a topic, or devices: one attempt each. Others decide when the next is made."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import h11
import orjson
import trio

from events.cloudevents import BATCH, STRUCTURED, Event, to_document, to_headers, to_json, to_properties
from events.connecting import Connector, TargetConnections
from events.delivery import Failed, judge
from events.exact import ExactSends, Origin, RuleSender
from events.specs import Device, Http, Target, Topic
from events.transform import Payload, TransformFailed
from penstock import Message, Producer
from penstock.errors import PenstockError
from penstock.protocol.message import TAGS
from penstock.world import Clock

ANSWER_BYTES_MAX: Final = 64 * 1024
SECRET_BYTES_MAX: Final = 16 * 1024
AGENT: Final = "penstock-events"


class Pusher:
    """The ways to all targets. Use it with ``async with``.

    Args:
        connector: who connects.
        producer: for devices.
        exact: for topics.
        secrets: the folder of files that targets name; None where there is none.
    """

    def __init__(
        self, connector: Connector, producer: Producer, exact: ExactSends, secrets: Path | None, clock: Clock
    ) -> None:
        self._connections = TargetConnections(connector)
        self._producer = producer
        self._exact = exact
        self._secrets = secrets
        self._clock = clock

    async def __aenter__(self) -> Pusher:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._connections.close()

    async def push(
        self,
        target: Target,
        rule: str,
        sender: RuleSender,
        origins: Sequence[Origin],
        made: Sequence[tuple[Event, Payload]],
    ) -> None:
        """Delivers a batch of events. ``origins``: of each. Raises ``Failed``."""
        to = target.to
        if isinstance(to, Http):
            await self._post(to, rule, made)
            return
        if isinstance(to, Topic):
            messages = [_to_topic(to, *one) for one in made]
            await self._exact.send(sender, list(zip(origins, messages, strict=True)))
            return
        try:
            messages = [_to_device(to, *one) for one in made]
            for topic in {one.topic for one in messages}:
                await self._exact.find_or_make(topic, sender)
            for outcome in await self._producer.send_each(messages):
                if outcome.error is not None:
                    raise outcome.error
        except TransformFailed as error:
            raise Failed(f"the name of the device cannot be made: {error}", is_final=True) from None
        except PenstockError as error:
            raise Failed(f"{type(error).__name__}: {error.message}", is_final=not error.retryable) from None

    async def _post(self, to: Http, rule: str, made: Sequence[tuple[Event, Payload]]) -> None:
        headers, body = request_of(to, made)
        ids = "+".join([event.attributes.get("id", "") for event, _ in made])
        key = ids if len(ids) <= 512 else hashlib.sha256(ids.encode()).hexdigest()
        headers["idempotency-key"] = quote(f"{key}/{rule}", safe="/:+-._~")
        headers |= {name.lower(): value for name, value in to.headers.items()}
        for name, file in to.secret_headers.items():
            headers[name.lower()] = self._secret(file).decode("latin-1")
        if to.hmac:
            headers |= self._signature(to.hmac, headers["idempotency-key"], body)
        headers |= {"user-agent": AGENT, "content-length": str(len(body))}
        named = [("host", to.netloc), *headers.items()]
        try:
            with trio.fail_after(to.timeout_s):
                answer = await self._connections.exchange(to.place, to.method, to.path, named, body, ANSWER_BYTES_MAX)
        except trio.TooSlowError:
            raise Failed(f"no whole answer within {to.timeout_s:g} s") from None
        except h11.LocalProtocolError as error:
            raise Failed(f"this is no HTTP request: {error}"[:300], is_final=True) from None
        except (trio.BrokenResourceError, h11.RemoteProtocolError, OSError) as error:
            raise Failed(_told(error)[:300]) from None
        judge(answer.status, answer.headers, answer.body, self._clock.wall_ms())

    def _secret(self, name: str) -> bytes:
        """The content of the file of a secret. Raises ``Failed``."""
        if self._secrets is None:
            raise Failed(f"the secret {name} is named, but the setting secrets names no folder")
        try:
            with open(self._secrets / name, "rb") as file:
                secret = file.read(SECRET_BYTES_MAX).strip()
        except OSError as error:
            raise Failed(f"the secret {name} cannot be read: {error.strerror}") from None
        if b"\n" in secret or b"\r" in secret or b"\0" in secret:
            raise Failed(f"the secret {name} has more than one line")
        return secret

    def _signature(self, file: str, id: str, body: bytes) -> dict[str, str]:
        """The headers of Standard Webhooks: who checks them knows that the request is ours, and when it was made."""
        at = str(self._clock.wall_ms() // 1000)
        signed = hmac.digest(self._secret(file), f"{id}.{at}.".encode() + body, "sha256")
        return {
            "webhook-id": id,
            "webhook-timestamp": at,
            "webhook-signature": f"v1,{b64encode(signed).decode()}",
        }


def _told(error: Exception) -> str:
    """The fate of a connection, for people."""
    cause = error.__cause__ if isinstance(error, trio.BrokenResourceError) and error.__cause__ else error
    return f"{type(cause).__name__}: {cause}"


def request_of(to: Http, made: Sequence[tuple[Event, Payload]]) -> tuple[dict[str, str], bytes]:
    """Headers and body of the request that carries these payloads."""
    event, payload = made[0]
    if to.batch > 1:
        if payload.is_event:
            return {"content-type": BATCH}, orjson.dumps([to_document(one) for one, _ in made])
        bodies = [one.body or b"null" for _, one in made]
        return {"content-type": "application/json"}, b"[" + b",".join(bodies) + b"]"
    if not payload.is_event:
        headers = {"content-type": payload.content_type} if payload.content_type else {}
        return headers, payload.body
    if to.is_structured:
        return {"content-type": STRUCTURED}, to_json(event)
    return to_headers(event), payload.body


def message_of(topic: str, event: Event) -> Message:
    """The message that stores an event: found by its id or its key, chosen by its type."""
    attributes = event.attributes
    key = attributes.get("partitionkey") or attributes.get("subject") or ""
    of_type = attributes["type"]
    tag = of_type if len(of_type) <= 128 and of_type.isprintable() and of_type not in ("*", TAGS) else ""
    return Message(topic, event.data or b"", key, tag, to_properties(event))


def _to_topic(to: Topic, event: Event, payload: Payload) -> Message:
    if payload.is_event:
        return message_of(to.topic, event)
    made = Event(event.attributes | {"datacontenttype": payload.content_type}, payload.body)
    return message_of(to.topic, made)


def _to_device(to: Device, event: Event, payload: Payload) -> Message:
    name = to.template.fill(to.variables.values(event.document())).decode()
    body, content_type = (to_json(event), STRUCTURED) if payload.is_event else (payload.body, payload.content_type)
    return Message(mqtt_topic=name, body=body, qos=to.qos, retain=to.retain, content_type=content_type)
