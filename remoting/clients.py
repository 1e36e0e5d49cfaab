"""Heartbeats and goodbyes of clients, their locks of ordered queues, and lists of connected clients."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from penstock.access.acl import CONSUME, GROUP, VIEW
from penstock.access.needs import of_group, of_topic
from penstock.errors import NotAuthorized, PenstockError, ProtocolError
from penstock.protocol.requests.messages import Pulled
from remoting import codes
from remoting.calls import Call, Front
from remoting.flows import Flow, FromClient
from remoting.frames import JSON, ONE_WAY, Command
from remoting.members import Beat, Changed, Client, beat_of
from remoting.pulling import read_at, stored_topic
from remoting.records import for_client, frames_of
from remoting.routes import answer_of
from remoting.settling import Checks
from remoting.signatures import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE

STATUS_BYTES_MAX: Final = 1 << 20
"""The largest text of a client about its place in each queue; a larger one is ignored."""


def json_of(command: Command) -> Any:
    """A body that is JSON, of text that can be sent on. Raises ``ProtocolError``."""
    try:
        row = json.loads(command.body)
        json.dumps(row, ensure_ascii=False).encode()  # a lone surrogate has no bytes
    except (ValueError, RecursionError):
        raise ProtocolError("a body that is no JSON") from None
    if not isinstance(row, dict):
        raise ProtocolError("a body that is no JSON object")
    return row


class ClientCalls:
    """The handlers that know which clients are there."""

    def __init__(self) -> None:
        self._checks = Checks()

    def heartbeat(self, call: Call) -> Flow:
        """Takes in which groups a client has; the front joins and leaves groups by it. The answer is an error where the
        broker does not let the front into one of them, or the rules do not allow it to the user; the other groups count
        all the same."""
        beat, forbidden = _allowed(call, beat_of(json_of(call.command)))
        command, front = call.command, call.front
        _check_owner(call, beat.client)
        client = Client(beat.client, call.connection, command.language, command.version, call.peer, call.user)
        changed = front.members.beat(client, beat)
        for group in beat.producers:
            self._checks.watch(front, group)
        groups = dict.fromkeys([*changed.groups, *[one.group for one in beat.consumers]])
        refused = yield from join_and_leave(front, groups)
        tell_changed(front, changed)
        if forbidden is not None:
            raise forbidden
        if refused:
            return command.answer(codes.SYSTEM_ERROR, remark=refused)
        return command.answer(codes.SUCCESS)

    def unregister(self, call: Call) -> Flow:
        """A client leaves a group."""
        command, front = call.command, call.front
        group = command.text("consumerGroup")
        _check_owner(call, command.text("clientID"))
        changed = front.members.leave(command.text("clientID"), command.text("producerGroup"), group)
        yield from leave_empty(front, changed)
        return command.answer(codes.SUCCESS)


def _check_owner(call: Call, client: str) -> None:
    """Raises ``NotAuthorized`` for a client id that another user has."""
    known = call.front.members.client(client)
    if known is not None and known.user != call.user:
        raise NotAuthorized(f"another user has the client id {client}", hint="give this client an instance name")


def _allowed(call: Call, beat: Beat) -> tuple[Beat, NotAuthorized | None]:
    """The part of a heartbeat that its user is allowed, and why the rest is refused; None where all is allowed. A
    producer without the right to its group is left out without an error: it can send, and is not asked about
    transactions of the group."""
    forbidden, consumers = None, []
    for one in beat.consumers:
        try:
            call.require(of_group((GROUP,), one.group))
            for topic in one.subscriptions:
                call.require(of_topic((CONSUME,), stored_topic(topic)))
            consumers.append(one)
        except NotAuthorized as error:
            forbidden = error
    producers = [group for group in beat.producers if call.may(of_group((GROUP,), group))]
    return Beat(beat.client, tuple(producers), tuple(consumers)), forbidden


def leave_empty(front: Front, changed: Changed) -> Flow:
    """Leaves the groups that have no clients any more, and tells the others of those that have."""
    yield from join_and_leave(front, changed.groups)
    tell_changed(front, changed)


def join_and_leave(front: Front, groups: Iterable[str]) -> Flow:
    """Brings the front's memberships of these groups in line with their clients. Returns why the broker does not let it
    into one of them, an empty text if it does."""
    refused = ""
    for group in groups:
        try:
            yield from front.groups.join(group, front.members.topics(group))
        except PenstockError:
            refused = front.groups.refusal(group)
    return refused


def tell_changed(front: Front, changed: Changed) -> None:
    """Tells the clients of groups that others have come or gone."""
    for group in changed.groups:
        for connection in front.members.connections_of(group):
            notice = Command(codes.CONSUMERS_CHANGED, 0, {"consumerGroup": group}, flag=ONE_WAY)
            front.push(connection, notice)


def consumers_of_group(call: Call) -> Command:
    """Ids of a group's clients, by which they deal the queues among themselves."""
    call.require(of_group((GROUP, VIEW), call.command.text("consumerGroup")))
    return answer_of(
        call.command, {"consumerIdList": sorted(call.front.members.consumers(call.command.text("consumerGroup")))}
    )


def lock_queues(call: Call) -> Command:
    """Locks queues of an ordered group for a client; answers with those that it has."""
    row = json_of(call.command)
    group, client, wanted = _lock_request(row)
    call.require(of_group((GROUP,), group))
    granted = set(call.front.members.lock(group, client, wanted, call.front.clock.steady()))
    return answer_of(call.command, {"lockOKMQSet": [queue for name, queue in wanted.items() if name in granted]})


def unlock_queues(call: Call) -> Command:
    """Frees queues that a client has locked."""
    group, client, wanted = _lock_request(json_of(call.command))
    call.require(of_group((GROUP,), group))
    call.front.members.unlock(group, client, wanted)
    return call.command.answer(codes.SUCCESS)


def _lock_request(row: Any) -> tuple[str, str, dict[str, Any]]:
    try:
        wanted = {f"{one['topic']}:{one['queueId']}": one for one in row.get("mqSet") or ()}
        return str(row["consumerGroup"]), str(row["clientId"]), wanted
    except (KeyError, TypeError):
        raise ProtocolError("a request for locks that is none") from None


def check_config(call: Call) -> Command:
    """Whether a subscription can be understood; its first pull reports the error."""
    return call.command.answer(codes.SUCCESS)


def consumer_connections(call: Call) -> Command:
    """The clients of a group of consumers."""
    members = call.front.members
    group = call.command.text("consumerGroup")
    call.require(of_group((GROUP, VIEW), group))
    consumers = members.consumers(group)
    if not consumers:
        return call.command.answer(codes.CONSUMER_NOT_ONLINE, remark=f"no client of the group {group} is connected")
    first = next(iter(consumers.values()))
    clients = [client for one in sorted(consumers) if (client := members.client(one)) is not None]
    return answer_of(
        call.command,
        {
            "connectionSet": [_connection(one) for one in clients],
            "subscriptionTable": {
                topic: {"topic": topic, "subString": one.text, "expressionType": "SQL92" if one.is_sql else "TAG"}
                for topic, one in first.subscriptions.items()
            },
            "consumeType": first.kind or "CONSUME_PASSIVELY",
            "messageModel": first.model or "CLUSTERING",
            "consumeFromWhere": first.where or "CONSUME_FROM_LAST_OFFSET",
        },
    )


def producer_connections(call: Call) -> Command:
    """The clients of a group of producers."""
    group = call.command.text("producerGroup")
    call.require(of_group((GROUP, VIEW), group))
    clients = call.front.members.producers(group)
    if not clients:
        return call.command.answer(codes.SYSTEM_ERROR, remark=f"the producer group {group} is not connected here")
    return answer_of(call.command, {"connectionSet": [_connection(one) for one in clients]})


def running_info(call: Call) -> Flow:
    """A consumer's description of itself: its queues, subscriptions and progress."""
    call.require(of_group((GROUP, VIEW), call.command.text("consumerGroup")))
    return (yield from _ask_consumer(call, call.command.body))


def consume_directly(call: Call) -> Flow:
    """Has a consumer process a message now, whatever its place in the queue; answers with the outcome."""
    command, front = call.command, call.front
    call.require(of_group((GROUP,), command.text("consumerGroup")))
    position = command.text("msgId")[-16:]
    try:
        found: Pulled = yield from read_at(call, int(position, 16))
    except ValueError:
        raise ProtocolError("the field msgId is no offset id") from None
    return (yield from _ask_consumer(call, for_client(frames_of(found), command.version, front.address)))


def consumer_status(call: Call) -> Flow:
    """The progress in a topic that each client of a group reports; of one client if the tool names it. One that
    does not answer is left out."""
    command, members = call.command, call.front.members
    group, only = command.text("group"), command.text("clientAddr")
    call.require(of_group((GROUP, VIEW), group))
    rows = []
    for name in sorted(members.consumers(group)):
        client = members.client(name)
        if client is None or only not in ("", name):
            continue
        fields = {"topic": command.text("topic"), "group": group}
        try:
            answer: Command = yield FromClient(client.connection, Command(codes.CLIENT_STATUS, 0, fields))
        except PenstockError:
            continue
        text = answer.body[:STATUS_BYTES_MAX].decode(errors="replace")
        rows.append(f"{json.dumps(name)}:{_table_in(text, 'messageQueueTable')}")
    if not rows:
        return command.answer(codes.SYSTEM_ERROR, remark=f"no client of the group {group} has answered")
    return command.answer(codes.SUCCESS, body=f'{{"consumerTable":{{{",".join(rows)}}}}}'.encode())


def _table_in(text: str, name: str) -> str:
    """The object of this name in RocketMQ's JSON, whose tables have objects for keys; an empty one for none."""
    start = text.find(f'"{name}":{{')
    if start < 0:
        return "{}"
    start += len(name) + 3
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if not depth:
            return text[start : at + 1]
    return "{}"


def _ask_consumer(call: Call, body: bytes) -> Flow:
    command, members = call.command, call.front.members
    group, name = command.text("consumerGroup"), command.text("clientId")
    client = members.client(name) if name in members.consumers(group) else None
    if client is None:
        return command.answer(codes.CONSUMER_NOT_ONLINE, remark=f"the group {group} has no client {name!r} here")
    fields = {key: value for key, value in command.fields.items() if key not in (ACCESS_KEY, SIGNATURE, SECURITY_TOKEN)}
    asked = Command(command.code, 0, fields, body, version=command.version, serialization=JSON)
    answer: Command = yield FromClient(client.connection, asked)
    return command.answer(answer.code, answer.fields, answer.body, answer.remark)


def _connection(client: Client) -> dict[str, Any]:
    return {
        "clientId": client.id,
        "clientAddr": client.address,
        "language": client.language,
        "version": client.version,
    }
