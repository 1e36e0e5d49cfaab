"""Requests of producers: single messages, batches, delayed and transactional messages, answers to requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from penstock.access.acl import PRODUCE
from penstock.access.needs import of_topic
from penstock.errors import InvalidMessage, NotAuthorized, NotLeader, PenstockError, TimedOut, TopicNotFound, from_wire
from penstock.protocol.addresses import split_address
from penstock.protocol.message import UNIQUE_KEY
from penstock.protocol.requests.messages import Append, Appended, Placed
from penstock.protocol.requests.timers import SetTimers, TimersSet
from penstock.protocol.requests.topics import ChangeTopic, DescribeTopic, TopicDetail
from penstock.protocol.requests.transactions import BeginHalves, HalvesBegun
from penstock.service.topic_rate import peer_of
from remoting import codes
from remoting.calls import Call
from remoting.flows import Flow, Own
from remoting.frames import Command
from remoting.records import TRANSACTIONAL, Sent, batch_of, encode_records, offset_ids, properties_of, sent_of

TEMPLATE_TOPIC: Final = "TBW102"
"""The topic whose route tells clients that others are made by the first message."""
QUEUES_MAX: Final = 64
"""Maximum number of queues of a topic that the first message makes."""
DELAYS_S: Final[tuple[int, ...]] = (1, 5, 10, 30, *[60 * minutes for minutes in (*range(1, 11), 20, 30, 60, 120)])
"""RocketMQ's delay levels, from level 1 on."""
STALE_MS: Final = 900_000
"""How far from now a signed message may have been made. No other command has a time in its signature."""
_REPLY_TO: Final = "REPLY_TO_CLIENT"


class _Names(NamedTuple):
    """Names of the fields of a send."""

    group: str
    topic: str
    default_topic: str
    default_queues: str
    queue: str
    system_flag: str
    born: str
    flag: str
    properties: str
    attempts: str
    unit_mode: str
    attempts_max: str
    batch: str
    broker: str


_OF_LONG: Final = _Names(
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp"),
    *("flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname"),
)
_OF_SHORT: Final = _Names(*"abcdefghijklmn")
_LONG: Final = dict(zip(_OF_SHORT, _OF_LONG, strict=True))


def long_names(command: Command) -> Command:
    """A send in its short form (310, 320, 325) with the long names of its fields."""
    return replace(command, fields={_LONG.get(name, name): value for name, value in command.fields.items()})


def send(call: Call) -> Flow:
    """Stores a message, now or later, or as a half; or a batch. Answers as the level of the topic is reached."""
    command, front = call.command, call.front
    names = _OF_LONG if "topic" in command.fields else _OF_SHORT
    topic = command.text(names.topic)
    born_ms = command.number(names.born, 0)
    _refuse_stale(call, born_ms)
    is_batch = command.code == codes.SEND_BATCH or command.flagged(names.batch)
    if is_batch:
        batch = batch_of(command.body, front.new_id)
    else:
        text, flag = command.text(names.properties), command.number(names.flag, 0)
        batch = [sent_of(command.body, text, flag, front.new_id)]
    name, queue, flags = topic.encode(), command.number(names.queue, -1), command.number(names.system_flag, 0)
    attempts, host = command.number(names.attempts, 0), call.peer_bytes
    records = encode_records(name, batch, queue, born_ms, flags, host, attempts)
    if not is_batch and batch[0].special:
        request = _special(command.text(names.group), batch[0], records[0], front.clock.wall_ms())
    else:
        if any([_delay_ms(one.special, 0) is not None for one in batch if one.special]):
            raise InvalidMessage("messages of a batch cannot be delayed")
        request = Append(len(records), True, records[0] if len(records) == 1 else b"".join(records))
    if topic not in front.topics:
        wanted = command.text(names.default_topic), command.number(names.default_queues, 4)
        yield from _find_topic(call, topic, *wanted)
        front.topics.add(topic)
    try:
        done: Appended | TimersSet | HalvesBegun = yield request
    except (NotLeader, TimedOut) as error:
        if not error.unknown:
            raise
        return _unsure(call, batch, queue, error)
    return _answer(call, batch, _placed(done))


def _special(group: str, sent: Sent, record: bytes, now_ms: int) -> Append | SetTimers | BeginHalves:
    """The request for a message that may be a half, or delayed."""
    delay = _delay_ms(sent.special, now_ms)
    if sent.special.get(TRANSACTIONAL, "").lower() == "true":
        if delay is not None:
            raise InvalidMessage("a transactional message cannot be delayed")
        return BeginHalves(group, 1, record)
    return Append(1, True, record) if delay is None else SetTimers((delay,), True, record)


def _refuse_stale(call: Call, born_ms: int) -> None:
    """Raises ``NotAuthorized`` for a signed message that was not made lately: it may have been recorded, and be sent
    again."""
    if call.permissions is not None:
        late_ms = abs(call.front.clock.wall_ms() - born_ms)
        if late_ms > STALE_MS:
            raise NotAuthorized(
                f"the message was made {late_ms // 1000} s from now, and its signature counts for {STALE_MS // 1000}",
                hint="set the clock of the client's machine",
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


def _find_topic(call: Call, topic: str, default_topic: str, queues: int) -> Flow:
    """Makes a topic that is missing, where the client asks for that and the broker's policy allows it, with as many
    queues as the client goes by: RocketMQ's clients send to the queues of the template until there is a route."""
    try:
        yield DescribeTopic(topic)
    except TopicNotFound:
        if default_topic != TEMPLATE_TOPIC:
            raise TopicNotFound(f"there is no topic {topic}", hint="create it first") from None
        call.require(of_topic((PRODUCE,), topic))
        if call.permissions is not None:
            peer = peer_of(call.user, split_address(call.peer)[0])
            call.front.rate.take(peer, call.front.clock.monotonic())
        made: TopicDetail = yield Own(DescribeTopic(topic, create=True))
        wanted = min(max(queues, 1), QUEUES_MAX)
        if made.queues != wanted:
            yield Own(ChangeTopic(topic, wanted))


def _placed(done: Appended | TimersSet | HalvesBegun) -> Sequence[Placed]:
    """The place of each message; of a delayed one or a half, its id in place of offset and position."""
    for refused in done.refused:
        raise from_wire(refused.code, refused.message)
    if isinstance(done, Appended):
        return done.placed
    ids = [one.id for one in done.timers] if isinstance(done, TimersSet) else done.ids
    return [Placed(0, one, one) for one in ids]


def _answer(call: Call, sent: list[Sent], placed: Sequence[Placed]) -> Command:
    host, first = call.front.address, placed[0]
    return call.command.answer(
        codes.SUCCESS,
        {
            "msgId": offset_ids(host, [one.position for one in placed]),
            "queueId": str(first.queue_id),
            "queueOffset": str(first.offset),
            "transactionId": ",".join([one.unique_id for one in sent]),
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        },
    )


def _unsure(call: Call, sent: list[Sent], queue: int, error: PenstockError) -> Command:
    """The answer for messages that are in the log and may not stay there: the disk, or the copies, have not answered in
    time. Clients take it as a status of the sent messages, with the fields of a place, which is unknown."""
    code = codes.FLUSH_COPIES_TIMEOUT if isinstance(error, NotLeader) else codes.FLUSH_DISK_TIMEOUT
    fields = {"msgId": "", "queueId": str(max(queue, 0)), "queueOffset": "-1"}
    fields["transactionId"] = ",".join([one.unique_id for one in sent])
    return call.command.answer(code, fields, remark=error.message)


def send_reply(call: Call) -> Command:
    """Passes an answer on to the client that asked. It is not stored."""
    command = long_names(call.command)
    _refuse_stale(call, command.number("bornTimestamp", 0))
    call.require(of_topic((PRODUCE,), command.text("topic")))
    properties = properties_of(command.text("properties"))
    client = call.front.members.client(properties.get(_REPLY_TO, ""))
    if client is None:
        return call.command.answer(
            codes.SYSTEM_ERROR, remark=f"the client {properties.get(_REPLY_TO, '')} is not connected here"
        )
    fields = {name: command.text(name) for name in ("producerGroup", "topic", "properties", "bornTimestamp")}
    fields |= {
        "bornHost": call.peer,
        "storeHost": call.front.place,
        "storeTimestamp": str(call.front.clock.wall_ms()),
    }
    fields |= {name: command.text(name, "0") for name in ("defaultTopicQueueNums", "queueId", "sysFlag", "flag")}
    fields |= {"defaultTopic": command.text("defaultTopic"), "reconsumeTimes": "0", "unitMode": "false"}
    call.front.push(client.connection, Command(codes.PUSH_REPLY, 0, fields, command.body))
    return call.command.answer(
        codes.SUCCESS,
        {"msgId": properties.get(UNIQUE_KEY, ""), "queueId": "0", "queueOffset": "0", "transactionId": ""},
    )
