"""Requests of consumers: pulls with long polling, offsets, bounds, searches."""

from __future__ import annotations

from typing import Final

from penstock.access.acl import CONSUME, GROUP
from penstock.access.needs import of_group, of_topic
from penstock.errors import OffsetOutOfRange, QueueNotFound, TopicNotFound
from penstock.protocol.requests.groups import FetchOffsets, GroupOffsets
from penstock.protocol.requests.messages import (
    BoundsReply,
    FindByKey,
    OffsetReply,
    Pull,
    Pulled,
    QueryBounds,
    ReadAt,
    SeekTime,
)
from penstock.protocol.requests.topics import Bounds
from remoting import codes
from remoting.calls import Call
from remoting.flows import Flow, Own, Sleep
from remoting.frames import Command
from remoting.members import Subscription
from remoting.records import for_client, frames_of, place_of
from topicmap.queues import RETRY_PREFIX, retry_topic, topic_queue

_COMMIT: Final = 1
_SUSPEND: Final = 2
_SUBSCRIPTION: Final = 4
WAIT_S_MAX: Final = 20.0
LOOK_S: Final = 1.0
"""How often a queue that is not there yet, as that of retries, is looked for while a client waits."""
BYTES_MAX: Final = 1 << 20
COUNT_MAX: Final = 1024
_UNIQUE: Final = "_UNIQUE_KEY_QUERY"


def stored_topic(topic: str) -> str:
    """The broker's name of a topic: that of a group's retries has the group's name in Penstock's form."""
    if topic.startswith(RETRY_PREFIX):
        return retry_topic(topic.removeprefix(RETRY_PREFIX))
    return topic


def queue_of(command: Command) -> str:
    """The queue that a command names."""
    return topic_queue(stored_topic(command.text("topic")), command.number("queueId"))


def pull(call: Call) -> Flow:
    """Messages of a queue, waiting for the first one as long as the client wants."""
    command, front = call.command, call.front
    group, flags = command.text("consumerGroup"), command.number("sysFlag", 0)
    call.require(of_group((GROUP,), group))
    if refused := front.groups.refusal(group):
        return command.answer(codes.SUBSCRIPTION_NOT_EXIST, remark=refused)
    if flags & _COMMIT and front.groups.is_in(group) and command.number("commitOffset", 0) >= 0:
        front.start(front.groups.commit(group, queue_of(command), command.number("commitOffset", 0)))
    wanted = _subscription(call, group, flags)
    wait_s = min(command.number("suspendTimeoutMillis", 0) / 1000, WAIT_S_MAX) if flags & _SUSPEND else 0.0
    request = Pull(
        queue_of(command),
        command.number("queueOffset"),
        min(max(command.number("maxMsgBytes", 256 << 10), 1), BYTES_MAX),
        min(max(command.number("maxMsgNums", 32), 1), COUNT_MAX),
        wait_s,
        wanted.tags,
        filter=wanted.condition,
        reader=group,
    )
    try:
        pulled: Pulled = yield from _when_there(request)
    except OffsetOutOfRange:
        return (yield from _moved(call, request))
    except QueueNotFound:
        return _no_queue(command, request)
    if pulled.count:
        body = for_client(frames_of(pulled), command.version, front.address)
        return command.answer(codes.SUCCESS, _told(pulled.next, pulled.min, pulled.end), body)
    code = codes.PULL_RETRY_IMMEDIATELY if pulled.next > request.offset else codes.PULL_NOT_FOUND
    return command.answer(code, _told(pulled.next, pulled.min, pulled.end))


def _when_there(request: Pull) -> Flow:
    """The result of a pull. It waits for the queue of a group's retries, which is created with the first retry."""
    left = request.wait_s
    while True:
        try:
            return (yield request)
        except QueueNotFound:
            if left <= 0 or not request.queue.startswith(RETRY_PREFIX):
                raise
            yield Sleep(min(LOOK_S, left))
            left -= LOOK_S


def _no_queue(command: Command, request: Pull) -> Command:
    """The answer for a queue that is not there: empty for retries; an error for any other, as its topic is gone."""
    if request.queue.startswith(RETRY_PREFIX):
        return command.answer(codes.PULL_NOT_FOUND, _told(0, 0, 0))
    return command.answer(codes.TOPIC_NOT_EXIST, remark=f"there is no queue {request.queue}")


def _moved(call: Call, request: Pull) -> Flow:
    """The answer for an offset that is not in the queue: the nearest one that is."""
    bounds = yield from _bounds(request.queue)
    nearest = min(max(request.offset, bounds.min), bounds.end)
    code = codes.PULL_NOT_FOUND if nearest == request.offset else codes.PULL_OFFSET_MOVED
    return call.command.answer(code, _told(nearest, bounds.min, bounds.end))


def _told(next_offset: int, first: int, end: int) -> dict[str, str]:
    """All four fields that clients read, always."""
    return {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": str(first),
        "maxOffset": str(end),
    }


def _subscription(call: Call, group: str, flags: int) -> Subscription:
    command = call.command
    topic = command.text("topic")
    if topic.startswith(RETRY_PREFIX):
        return Subscription(topic)
    if flags & _SUBSCRIPTION and command.text("subscription"):
        is_sql = command.text("expressionType").upper() == "SQL92"
        return Subscription(topic, command.text("subscription"), is_sql)
    return call.front.members.subscription(group, topic) or Subscription(topic)


def _bounds(queue: str) -> Flow:
    found: BoundsReply = yield QueryBounds((queue,))
    return found.bounds[0]


def _bounds_of(command: Command) -> Flow:
    """Bounds of the queue that a command names; of retries that there are none of yet, zeros."""
    queue = queue_of(command)
    try:
        return (yield from _bounds(queue))
    except QueueNotFound:
        if not queue.startswith(RETRY_PREFIX):
            raise TopicNotFound(f"there is no queue {queue}") from None
        return Bounds(queue, 0, 0)


def max_offset(call: Call) -> Flow:
    """The offset behind the last message."""
    bounds: Bounds = yield from _bounds_of(call.command)
    return call.command.answer(codes.SUCCESS, {"offset": str(bounds.end)})


def min_offset(call: Call) -> Flow:
    """The offset of the first message."""
    bounds: Bounds = yield from _bounds_of(call.command)
    return call.command.answer(codes.SUCCESS, {"offset": str(bounds.min)})


def search_offset(call: Call) -> Flow:
    """The first offset at or after a time."""
    found: OffsetReply = yield SeekTime(queue_of(call.command), max(call.command.number("timestamp"), 0))
    return call.command.answer(codes.SUCCESS, {"offset": str(found.offset)})


def query_offset(call: Call) -> Flow:
    """A group's position, or that it has none: the client then decides where it begins."""
    queue = queue_of(call.command)
    found: GroupOffsets = yield FetchOffsets(call.command.text("consumerGroup"), (queue,))
    offset = found.offsets[0].offset
    if offset >= 0:
        return call.command.answer(codes.SUCCESS, {"offset": str(offset)})
    return call.command.answer(codes.QUERY_NOT_FOUND, remark="the group has no offset there yet")


def update_offset(call: Call) -> Flow:
    """Stores a group's position."""
    offset = call.command.number("commitOffset")
    yield from call.front.groups.commit(call.command.text("consumerGroup"), queue_of(call.command), offset)
    return call.command.answer(codes.SUCCESS)


def query_message(call: Call) -> Flow:
    """Messages of a topic by key or unique id, newest first."""
    command = call.command
    wanted = min(max(command.number("maxNum", 32), 1), 64)
    since, until = command.number("beginTimestamp", 0), command.number("endTimestamp", 1 << 62)
    found, before, count = b"", 1 << 62, 0
    while before and count < wanted:
        page: Pulled = yield FindByKey(
            stored_topic(command.text("topic")), command.text("key"), max(since, 0), until, wanted - count, before
        )
        found += for_client(frames_of(page), command.version, call.front.address)
        count, before = count + page.count, page.next
    if not count:
        return command.answer(codes.QUERY_NOT_FOUND, remark="there is no message with this key in this time")
    fields = {"indexLastUpdateTimestamp": str(call.front.clock.wall_ms()), "indexLastUpdatePhyoffset": "0"}
    return command.answer(codes.SUCCESS, fields, found)


def read_at(call: Call, position: int) -> Flow:
    """The message at a position, whose topic the sender must be allowed to consume."""
    found: Pulled = yield Own(ReadAt(position))
    for frame in frames_of(found):
        call.require(of_topic((CONSUME,), place_of(frame).topic))
    return found


def view_message(call: Call) -> Flow:
    """The message at a position of the log, as an offset id has it."""
    found = yield from read_at(call, call.command.number("offset"))
    return call.command.answer(
        codes.SUCCESS, body=for_client(frames_of(found), call.command.version, call.front.address)
    )
