"""The name server's face: where topics are, in RocketMQ's words; and what administration asks of topics and groups."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.access.acl import GROUP, VIEW
from penstock.access.needs import of_group, of_topic
from penstock.errors import GroupNotFound, NoRoute, NotAuthorized, TopicNotFound
from penstock.protocol.requests.groups import DeleteGroup, DescribeGroup, GroupDetail, GroupsPage, ListGroups
from penstock.protocol.requests.messages import OffsetReply, SeekTime
from penstock.protocol.requests.routes import (
    BrokerRoute,
    ConfigEntries,
    PutConfig,
    QueryConfig,
    QueryRoute,
    QueryTopics,
    Route,
    TopicNames,
)
from penstock.protocol.requests.servers import BrokerFigures, ReadFigures
from penstock.protocol.requests.topics import ChangeTopic, CreateTopic, DeleteTopic, DescribeTopic, TopicDetail
from penstock.version import VERSION
from remoting import codes
from remoting.calls import Call, Front
from remoting.flows import AtNames, Flow, Own
from remoting.frames import ONE_WAY, Command
from remoting.pulling import stored_topic
from remoting.records import CLUSTER
from remoting.sending import QUEUES_MAX, TEMPLATE_TOPIC
from topicmap.queues import RETRY_PREFIX, parse_topic_queue

FRONTS: Final = "ROCKETMQ_FRONTS"
"""The namespace of the name servers' key-value store that says where each broker's front is: by the broker's name, and
by its address, as the copies of one log have one name."""
_READ, _WRITE, _INHERIT = 4, 2, 1
TEMPLATE_QUEUES: Final = 8
_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
_STATS_S: Final = {"statsMinute": 60, "statsHour": 3600, "statsDay": 86400}


def announce(front: Front) -> Flow:
    """Tells the name server where this front is."""
    yield AtNames(PutConfig(FRONTS, front.broker, front.place))
    yield AtNames(PutConfig(FRONTS, front.broker_address, front.place))


def route(call: Call) -> Flow:
    """The brokers of a topic that have a front, with their queues."""
    topic = call.command.text("topic")
    fronts = yield from _fronts(call.front)
    if topic == TEMPLATE_TOPIC or topic.startswith(RETRY_PREFIX):
        brokers = yield from _brokers("")
        queues = TEMPLATE_QUEUES if topic == TEMPLATE_TOPIC else 1
        rows = [(one, queues, True) for one in brokers if _front_of(one, fronts)]
        access = _READ | _WRITE | (_INHERIT if topic == TEMPLATE_TOPIC else 0)
    else:
        brokers = yield from _brokers(stored_topic(topic))
        rows = [(one, one.queues, one.writable) for one in brokers if _front_of(one, fronts)]
        access = _READ | _WRITE
    if not rows:
        raise TopicNotFound(f"no topic route info in name server for the topic: {topic}")
    body = {
        "orderTopicConf": "",
        "queueDatas": [_queue_data(one.broker, queues, writable, access) for one, queues, writable in rows],
        "brokerDatas": [_broker_data(one, fronts) for one, _queues, _writable in rows],
        "filterServerTable": {},
    }
    return call.command.answer(codes.SUCCESS, body=_json(body))


def _queue_data(broker: str, queues: int, writable: bool, access: int) -> dict[str, Any]:
    return {
        "brokerName": broker,
        "readQueueNums": queues,
        "writeQueueNums": queues if writable else 0,
        "perm": access if writable else access & ~_WRITE,
        "topicSysFlag": 0,
        "topicSynFlag": 0,
    }


def _broker_data(broker: BrokerRoute, fronts: Mapping[str, str]) -> dict[str, Any]:
    """The fronts of one broker as clients know them: 0 is that of the node that leads, the others are those of copies
    that can be read."""
    copies = [fronts[one] for one in broker.readers if one in fronts and one != broker.address]
    places = enumerate([_front_of(broker, fronts), *copies])
    return {"cluster": CLUSTER, "brokerName": broker.broker, "brokerAddrs": {str(id): at for id, at in places}}


def _fronts(front: Front) -> Flow:
    """The addresses of fronts, by broker; this one among them in any case."""
    found: ConfigEntries = yield Own(AtNames(QueryConfig(FRONTS)))
    own = {front.broker: front.place, front.broker_address: front.place}
    return {one.key: one.value for one in found.entries} | own


def _front_of(broker: BrokerRoute, fronts: Mapping[str, str]) -> str:
    """The address of a broker's front, or of the leading node's if it has copies; empty without one."""
    return fronts.get(broker.address if broker.epoch else broker.broker, "")


def _brokers(topic: str) -> Flow:
    try:
        found: Route = yield AtNames(QueryRoute(topic))
    except NoRoute:
        return ()
    brokers: Sequence[BrokerRoute] = found.brokers
    return brokers


def cluster_info(call: Call) -> Flow:
    """All brokers that have a front."""
    fronts = yield from _fronts(call.front)
    brokers = yield from _brokers("")
    found = {one.broker: _broker_data(one, fronts) for one in brokers if _front_of(one, fronts)}
    body = {
        "brokerAddrTable": found,
        "clusterAddrTable": {CLUSTER: list(found)},
    }
    return call.command.answer(codes.SUCCESS, body=_json(body))


def all_topics(call: Call) -> Flow:
    """Names of all topics, and of the retries of the groups that have a client here: by those tools find groups."""
    found: TopicNames = yield AtNames(QueryTopics())
    retries = [RETRY_PREFIX + group for group in call.front.members.consumer_groups]
    topics = list(dict.fromkeys([*found.topics, *retries]))
    return call.command.answer(codes.SUCCESS, body=_json({"topicList": topics, "brokerAddr": ""}))


def create_topic(call: Call) -> Flow:
    """Makes a topic, or changes how many queues it has and what may be done with it."""
    command = call.command
    topic, queues = command.text("topic"), min(max(command.number("writeQueueNums", 8), 1), QUEUES_MAX)
    access = _access(command.number("perm", 6))
    try:
        yield DescribeTopic(topic)
    except TopicNotFound:
        yield CreateTopic(topic, queues, access=access)
    else:
        yield ChangeTopic(topic, queues, access=access)
    return command.answer(codes.SUCCESS)


def _access(perm: int) -> str:
    reads, writes = bool(perm & _READ), bool(perm & _WRITE)
    return {(True, True): "rw", (True, False): "r", (False, True): "w", (False, False): "none"}[reads, writes]


def topic_config(call: Call) -> Flow:
    """The configuration of a topic."""
    topic = call.command.text("topic")
    found: TopicDetail = yield DescribeTopic(stored_topic(topic))
    perm = (_READ if "r" in found.access else 0) | (_WRITE if "w" in found.access else 0)
    row = {"topicName": topic, "readQueueNums": found.queues, "writeQueueNums": found.queues - found.draining}
    row |= {"perm": perm, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False, "attributes": {}}
    return answer_of(call.command, row)


def broker_info(call: Call) -> Flow:
    """The broker's figures, by the names that they have in its metrics."""
    found: BrokerFigures = yield ReadFigures()
    table = {name: str(value) for name, value in zip(found.names, found.values, strict=True)}
    return answer_of(call.command, {"table": {"brokerVersionDesc": f"Penstock {VERSION}"} | table})


def broker_stats(call: Call) -> Flow:
    """The numbers of messages that came to a topic in the last minute, hour and day, by the times of the kept ones. No
    other statistics of RocketMQ's are there."""
    command, now_ms = call.command, call.front.clock.wall_ms()
    topic, wanted = command.text("statsKey"), command.text("statsName")
    call.require(of_topic((VIEW,), stored_topic(topic)))
    if wanted != _PUT_NUMS:
        return command.answer(codes.SYSTEM_ERROR, remark=f"the statistics {wanted} are not kept")
    found: TopicDetail = yield DescribeTopic(stored_topic(topic))
    row = {}
    for name, seconds in _STATS_S.items():
        count = 0
        for one in found.bounds:
            since: OffsetReply = yield SeekTime(one.queue, now_ms - seconds * 1000)
            count += one.end - min(since.offset, one.end)
        row[name] = {"sum": count, "tps": count / seconds, "avgpt": 0.0}
    return answer_of(command, row)


def reset_offsets(call: Call) -> Flow:
    """Sets a group's offsets in a topic back or ahead to a time, and tells its clients, which go on from there."""
    command, front = call.command, call.front
    topic, group = command.text("topic"), command.text("group")
    call.require(of_group((GROUP,), group))
    found: TopicDetail = yield DescribeTopic(stored_topic(topic))
    stored_ms = command.number("timestamp")
    rows = []
    for one in found.bounds:
        offset = one.end
        if 0 <= stored_ms <= front.clock.wall_ms():
            placed: OffsetReply = yield SeekTime(one.queue, stored_ms)
            offset = placed.offset
        yield from front.groups.commit(group, one.queue, offset)
        rows.append(f"{_queue_key(front.broker, one.queue)}:{offset}")
    body = _offset_table(rows, "")
    fields = {"topic": topic, "group": group, "timestamp": str(stored_ms), "isForce": "true"}
    for connection in front.members.connections_of(group):
        front.push(connection, Command(codes.RESET_CLIENT_OFFSETS, 0, fields, body, ONE_WAY))
    return command.answer(codes.SUCCESS, body=body)


def delete_topic(call: Call) -> Flow:
    """Deletes a topic with its messages."""
    yield DeleteTopic(call.command.text("topic"))
    return call.command.answer(codes.SUCCESS)


def delete_group(call: Call) -> Flow:
    """Forgets a group. One that is not known is forgotten already: to make one leaves nothing here."""
    with suppress(GroupNotFound):
        yield DeleteGroup(call.command.text("groupName"))
    return call.command.answer(codes.SUCCESS)


def topic_stats(call: Call) -> Flow:
    """Bounds of a topic's queues."""
    found: TopicDetail = yield DescribeTopic(stored_topic(call.command.text("topic")))
    now_ms = call.front.clock.wall_ms()
    rows = []
    for one in found.bounds:
        key = _queue_key(call.front.broker, one.queue)
        rows.append(f'{key}:{{"lastUpdateTimestamp":{now_ms},"maxOffset":{one.end},"minOffset":{one.min}}}')
    return call.command.answer(codes.SUCCESS, body=_offset_table(rows, ""))


def groups_of_topic(call: Call) -> Flow:
    """The groups that have a position in a topic, or clients that want it."""
    topic = stored_topic(call.command.text("topic"))
    groups = [one for one in call.front.members.consumer_groups if topic in call.front.members.topics(one)]
    after, is_first = "", True
    while after or is_first:
        page: GroupsPage = yield ListGroups(after)
        after, is_first = page.after, False
        for row in page.groups:
            with suppress(GroupNotFound, NotAuthorized):
                detail: GroupDetail = yield DescribeGroup(row.group)
                if any([parse_topic_queue(one.queue).topic == topic and one.offset >= 0 for one in detail.lags]):
                    groups.append(row.group)
    return answer_of(call.command, {"groupList": sorted({*groups})})


def consume_stats(call: Call) -> Flow:
    """The progress of a group in its queues."""
    group, topic = call.command.text("consumerGroup"), call.command.text("topic")
    try:
        found: GroupDetail = yield DescribeGroup(group)
    except GroupNotFound:
        return call.command.answer(codes.SUCCESS, body=_offset_table([], '"consumeTps":0.0,'))
    rows = []
    for one in found.lags:
        if topic and parse_topic_queue(one.queue).topic != stored_topic(topic):
            continue
        key = _queue_key(call.front.broker, one.queue)
        place = f'"brokerOffset":{one.end},"consumerOffset":{max(one.offset, 0)},"pullOffset":{max(one.offset, 0)}'
        rows.append(f'{key}:{{{place},"lastTimestamp":0}}')
    return call.command.answer(codes.SUCCESS, body=_offset_table(rows, '"consumeTps":0.0,'))


def _queue_key(broker: str, queue: str) -> str:
    topic, number = parse_topic_queue(queue)
    return json.dumps({"brokerName": broker, "queueId": number, "topic": topic}, separators=(",", ":"))


def _offset_table(rows: list[str], more: str) -> bytes:
    """RocketMQ's tables have objects for keys, which is no JSON: their clients read it."""
    return f'{{{more}"offsetTable":{{{",".join(rows)}}}}}'.encode()


def _json(row: Any) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()


def nothing(call: Call) -> Command:
    """Answers commands that need no work here: groups need not be created, and the name server forgets topics by
    itself."""
    return call.command.answer(codes.SUCCESS)


def answer_of(command: Command, row: Any) -> Command:
    """An answer with a JSON body."""
    return command.answer(codes.SUCCESS, body=_json(row))
