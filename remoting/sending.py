"""Requests of producers: single messages, batches, delayed and transactional messages, answers to requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.access.acl import PRODUCE
from penstock.access.needs import of_topic
from penstock.errors import InvalidMessage, NotAuthorized, TopicNotFound, from_wire
from penstock.protocol.message import UNIQUE_KEY
from penstock.protocol.requests.messages import Append, Appended, Placed
from penstock.protocol.requests.timers import SetTimers, TimersSet
from penstock.protocol.requests.topics import CreateTopic, DescribeTopic
from penstock.protocol.requests.transactions import BeginHalves, HalvesBegun
from remoting import codes
from remoting.calls import Call
from remoting.flows import Flow, Own
from remoting.frames import Command
from remoting.records import TRANSACTIONAL, Sent, batch_of, encode_record, offset_id, properties_of, unique_id_of

TEMPLATE_TOPIC: Final = "TBW102"
"""The topic whose route tells clients that others are made by the first message."""
QUEUES_MAX: Final = 64
"""Maximum number of queues of a topic that the first message makes."""
DELAYS_S: Final[tuple[int, ...]] = (1, 5, 10, 30, *[60 * minutes for minutes in (*range(1, 11), 20, 30, 60, 120)])
"""RocketMQ's delay levels, from level 1 on."""
_SHORT: Final = dict(
    zip(
        "abcdefghijklmn",
        (
            *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag"),
            *("bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch"),
            "bname",
        ),
        strict=True,
    )
)
STALE_MS: Final = 900_000
"""How far from now a signed message may have been made. No other command has a time in its signature."""
_REPLY_TO: Final = "REPLY_TO_CLIENT"
_CORRELATION: Final = "CORRELATION_ID"
_CLUSTER: Final = "CLUSTER"
CLUSTER: Final = "DefaultCluster"


def long_names(command: Command) -> Command:
    """A send in its short form (310, 320, 325) with the long names of its fields."""
    return replace(command, fields={_SHORT.get(name, name): value for name, value in command.fields.items()})


def send(call: Call) -> Flow:
    """Stores a message, now or later, or as a half. Answers as the level of the topic is reached."""
    command = long_names(call.command)
    topic = command.text("topic")
    _refuse_stale(call, command)
    if command.flagged("batch") or command.code == codes.SEND_BATCH:
        return (yield from _send_batch(call, command, topic))
    sent = _with_id(call, Sent(command.body, properties_of(command.text("properties")), command.number("flag", 0)))
    record = _record(call, command, topic, sent)
    delay = _delay_ms(sent.properties, call.front.clock.wall_ms())
    request: Append | SetTimers | BeginHalves
    if sent.properties.get(TRANSACTIONAL, "").lower() == "true":
        if delay is not None:
            raise InvalidMessage("a transactional message cannot be delayed")
        request = BeginHalves(command.text("producerGroup"), 1, record)
    elif delay is not None:
        request = SetTimers((delay,), True, record)
    else:
        request = Append(1, True, record)
    placed = yield from _stored(call, command, topic, request)
    return _answer(call, [sent], placed)


def _refuse_stale(call: Call, command: Command) -> None:
    """Raises ``NotAuthorized`` for a signed message that was made long ago: somebody may have kept it, to send it once
    more."""
    if call.permissions is not None:
        late_ms = abs(call.front.clock.wall_ms() - command.number("bornTimestamp", 0))
        if late_ms > STALE_MS:
            raise NotAuthorized(
                f"the message was made {late_ms // 1000} s from now, and its signature counts for {STALE_MS // 1000}",
                hint="set the clock of the client's machine",
            )


def _send_batch(call: Call, command: Command, topic: str) -> Flow:
    batch = [_with_id(call, one) for one in batch_of(command.body)]
    if any(_delay_ms(one.properties, 0) is not None for one in batch):
        raise InvalidMessage("messages of a batch cannot be delayed")
    records = [_record(call, command, topic, one) for one in batch]
    placed = yield from _stored(call, command, topic, Append(len(records), True, b"".join(records)))
    return _answer(call, batch, placed)


def _with_id(call: Call, sent: Sent) -> Sent:
    """Gives a message that has none a unique id, and one that asks for an answer the name that its answer needs."""
    properties = sent.properties
    if not unique_id_of(properties):
        properties[UNIQUE_KEY] = f"{call.front.rng.getrandbits(128):032X}"
    if _CORRELATION in properties:
        properties.setdefault(_CLUSTER, CLUSTER)
    return sent


def _record(call: Call, command: Command, topic: str, sent: Sent) -> bytes:
    return encode_record(
        topic,
        sent,
        command.number("queueId", -1),
        command.number("bornTimestamp", 0),
        command.number("sysFlag", 0),
        call.peer_bytes,
        command.number("reconsumeTimes", 0),
    )


def _delay_ms(properties: dict[str, str], now_ms: int) -> int | None:
    """After how many milliseconds a message is due; ``None`` for now."""
    try:
        level = int(properties.get("DELAY") or 0)
        if level > 0:
            return DELAYS_S[min(level, len(DELAYS_S)) - 1] * 1000
        if "TIMER_DELIVER_MS" in properties:
            return max(int(properties["TIMER_DELIVER_MS"]) - now_ms, 0)
        if "TIMER_DELAY_MS" in properties:
            return int(properties["TIMER_DELAY_MS"])
        if "TIMER_DELAY_SEC" in properties:
            return int(properties["TIMER_DELAY_SEC"]) * 1000
    except ValueError:
        raise InvalidMessage("a delay that is no number") from None
    return None


def _stored(call: Call, command: Command, topic: str, request: Append | SetTimers | BeginHalves) -> Flow:
    """Stores messages and says where."""
    if topic not in call.front.topics:
        yield from _find_topic(call, command, topic)
        call.front.topics.add(topic)
    return (yield from _once(request))


def _find_topic(call: Call, command: Command, topic: str) -> Flow:
    """Makes a topic that is missing with as many queues as the client goes by, where it asks for that: RocketMQ's
    clients send to the queues of the template until there is a route."""
    try:
        yield DescribeTopic(topic)
    except TopicNotFound:
        if command.text("defaultTopic") != TEMPLATE_TOPIC:
            raise TopicNotFound(f"there is no topic {topic}", hint="create it first") from None
        call.require(of_topic((PRODUCE,), topic))
        yield Own(CreateTopic(topic, min(max(command.number("defaultTopicQueueNums", 4), 1), QUEUES_MAX)))


def _once(request: Append | SetTimers | BeginHalves) -> Flow:
    """Where each message is; of one that sleeps or is a half, its id in place of offset and position."""
    done: Appended | TimersSet | HalvesBegun = yield request
    for refused in done.refused:
        raise from_wire(refused.code, refused.message)
    if isinstance(done, Appended):
        return list(done.placed)
    ids = [one.id for one in done.timers] if isinstance(done, TimersSet) else done.ids
    return [Placed(0, one, one) for one in ids]


def _answer(call: Call, sent: list[Sent], placed: list[Placed]) -> Command:
    ids = [offset_id(call.front.address, one.position) for one in placed]
    unique = ",".join([unique_id_of(one.properties) for one in sent])
    return call.command.answer(
        codes.SUCCESS,
        {
            "msgId": ",".join(ids),
            "queueId": str(placed[0].queue_id),
            "queueOffset": str(placed[0].offset),
            "transactionId": unique,
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        },
    )


def send_reply(call: Call) -> Command:
    """Passes an answer on to the client that asked. It is not stored."""
    command = long_names(call.command)
    _refuse_stale(call, command)
    call.require(of_topic((PRODUCE,), command.text("topic")))
    properties = properties_of(command.text("properties"))
    client = call.front.members.client(properties.get(_REPLY_TO, ""))
    if client is None:
        return call.command.answer(
            codes.SYSTEM_ERROR, remark=f"the client {properties.get(_REPLY_TO, '')} is not connected here"
        )
    host, _, port = call.peer.rpartition(":")
    fields = {name: command.text(name) for name in ("producerGroup", "topic", "properties", "bornTimestamp")}
    fields |= {
        "bornHost": f"{host}:{port}",
        "storeHost": call.front.place,
        "storeTimestamp": str(call.front.clock.wall_ms()),
    }
    fields |= {name: command.text(name, "0") for name in ("defaultTopicQueueNums", "queueId", "sysFlag", "flag")}
    fields |= {"defaultTopic": command.text("defaultTopic"), "reconsumeTimes": "0", "unitMode": "false"}
    call.front.push(client.connection, Command(codes.PUSH_REPLY, 0, fields, command.body))
    return call.command.answer(
        codes.SUCCESS,
        {"msgId": unique_id_of(properties), "queueId": "0", "queueOffset": "0", "transactionId": ""},
    )
