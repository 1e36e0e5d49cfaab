"""Outcomes of messages: consumers give them back; producers commit them, roll them back, and are asked about them."""

from __future__ import annotations

from typing import Final

from penstock.access.acl import CONSUME
from penstock.access.needs import of_topic
from penstock.errors import InvalidMessage, OffsetOutOfRange, TopicNotFound, from_wire
from penstock.protocol.message import OFFSETS, OFFSETS_AT
from penstock.protocol.requests.messages import FindByKey, Pulled
from penstock.protocol.requests.retries import BY_TABLE, SendBack
from penstock.protocol.requests.transactions import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    EndHalves,
    HalfOutcome,
    HalfRow,
    HalvesEnded,
    HalvesToCheck,
    WatchHalves,
)
from remoting import codes, sending
from remoting.calls import Call, Front
from remoting.flows import Flow, Own, Sleep
from remoting.frames import ONE_WAY, Command
from remoting.members import Client
from remoting.pulling import read_at, stored_topic
from remoting.records import (
    RETRY_TOPIC,
    as_client_reads,
    frames_of,
    offset_ids,
    place_of,
    properties_of,
    property_of,
)
from remoting.sending import DELAYS_S
from topicmap.queues import RETRY_PREFIX, topic_queue

ATTEMPTS_MAX: Final = 16
WATCH_S: Final = 10.0
ORIGIN_MESSAGE: Final = "ORIGIN_MESSAGE_ID"
_OUTCOMES: Final = {8: COMMIT, 12: ROLLBACK, 0: UNKNOWN}


def send_back(call: Call) -> Flow:
    """A consumer could not work a message off: it comes again later, or is a dead letter of the group."""
    command, front = call.command, call.front
    group, level = command.text("group"), command.number("delayLevel", 0)
    found: Pulled = yield from read_at(call, command.number("offset"))
    frame = next(frames_of(found), None)
    if frame is None:
        raise OffsetOutOfRange("there is no message at this position any more")
    place = place_of(frame)
    delay_ms = DELAYS_S[min(level, len(DELAYS_S)) - 1] * 1000 if level > 0 else BY_TABLE
    attempts = command.number("maxReconsumeTimes", ATTEMPTS_MAX)
    # RocketMQ counts the attempts after the first one; a negative level asks for a dead letter at once.
    attempts_max = 1 if level < 0 else min(attempts + 1, 1000) if attempts >= 0 else ATTEMPTS_MAX + 1
    queue = topic_queue(place.topic, place.queue_id)
    member, generation = front.groups.member, front.groups.generation(group)
    yield SendBack(group, member, generation, queue, place.offset, delay_ms, attempts_max, "given back by RocketMQ's")
    return command.answer(codes.SUCCESS)


def send(call: Call) -> Flow:
    """A message is sent; one that goes to the retries of a group is a message that a consumer gives back: those of
    ordered queues do it so, and others where ``send_back`` has failed."""
    command = call.command
    topic = command.text("b") or command.text("topic")
    return _send_to_retries(call, topic) if topic.startswith(RETRY_PREFIX) else sending.send(call)


def _send_to_retries(call: Call, topic: str) -> Flow:
    """The message that is given back is found by the id that its copy names, as the broker takes it from its log."""
    command, group = sending.long_names(call.command), topic.removeprefix(RETRY_PREFIX)
    properties = properties_of(command.text("properties"))
    origin = properties.get(ORIGIN_MESSAGE, "")
    frame = yield from _newest(stored_topic(topic), origin)
    if frame is None:
        frame = yield from _newest(properties.get(RETRY_TOPIC, ""), origin)
    if frame is None:
        raise InvalidMessage(f"a message of the topic {topic} that no consumer has been given: {origin!r}")
    place, done = place_of(frame), command.number("reconsumeTimes", 0)
    call.require(of_topic((CONSUME,), place.topic))
    is_last = done >= command.number("maxReconsumeTimes", ATTEMPTS_MAX)
    member, generation = call.front.groups.member, call.front.groups.generation(group)
    queue, most = topic_queue(place.topic, place.queue_id), 1 if is_last else ATTEMPTS_MAX + 1
    yield SendBack(group, member, generation, queue, place.offset, BY_TABLE, most, "given back by RocketMQ's")
    fields = {"msgId": "", "queueId": "0", "queueOffset": "0", "transactionId": ""}
    return command.answer(codes.SUCCESS, fields)


def _newest(topic: str, unique_id: str) -> Flow:
    """The newest message of a topic that has this unique id; None where there is none, or no topic."""
    before = 1 << 62 if topic and unique_id else 0
    while before:
        try:
            page: Pulled = yield Own(FindByKey(topic, unique_id, count_max=1, before=before))
        except TopicNotFound:
            return None
        if page.count:
            return next(frames_of(page))
        before = page.next
    return None


def end_transaction(call: Call) -> Flow:
    """A producer gives the outcome of a half."""
    command = call.command
    outcome = _OUTCOMES.get(command.number("commitOrRollback", 0), UNKNOWN)
    half, group = command.number("tranStateTableOffset"), command.text("producerGroup")
    ended: HalvesEnded = yield EndHalves(group, (HalfOutcome(half, outcome),))
    (one,) = ended.ended
    if one.code:
        raise from_wire(one.code, one.message)
    return command.answer(codes.SUCCESS)


class Checks:
    """Producers are asked about halves whose outcome they have not said: one long poll per group that has a client."""

    def __init__(self) -> None:
        self._watched: set[str] = set()

    def watch(self, front: Front, group: str) -> None:
        """Begins to ask the producers of a group, as long as there are any."""
        if group not in self._watched:
            self._watched.add(group)
            front.start(self._stay(front, group))

    def _stay(self, front: Front, group: str) -> Flow:
        try:
            while front.members.producers(group):
                try:
                    found: HalvesToCheck = yield WatchHalves(group, WATCH_S)
                except Exception:
                    yield Sleep(1.0)
                    continue
                _ask(front, group, found)
        finally:
            self._watched.discard(group)


def _ask(front: Front, group: str, found: HalvesToCheck) -> None:
    at = 0
    for row in found.halves:
        record = bytes(memoryview(found.body)[at : at + row.size])
        at += row.size
        clients = front.members.producers(group)
        if clients and row.size:
            client = clients[row.id % len(clients)]
            front.push(client.connection, _check(front, client, row, record))


def _check(front: Front, client: Client, row: HalfRow, record: bytes) -> Command:
    """The question about a half, with its message as the client reads it."""
    record = record[:OFFSETS_AT] + OFFSETS.pack(row.id, row.id) + record[OFFSETS_AT + OFFSETS.size :]
    unique = property_of(record, "UNIQ_KEY")
    fields = {
        "tranStateTableOffset": str(row.id),
        "commitLogOffset": str(row.id),
        "msgId": unique,
        "transactionId": unique,
        "offsetMsgId": offset_ids(front.address, (row.id,)),
    }
    body = as_client_reads(record, client.version, front.address) or b""
    return Command(codes.CHECK_TRANSACTION, 0, fields, body, ONE_WAY)
