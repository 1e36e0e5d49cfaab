"""Outcomes of messages: consumers give them back; producers commit them, roll them back, and are asked about them."""

from __future__ import annotations

from typing import Final

from penstock.errors import OffsetOutOfRange, from_wire
from penstock.protocol.message import OFFSETS, OFFSETS_AT
from penstock.protocol.requests.messages import Pulled
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
from remoting import codes
from remoting.calls import Call, Front
from remoting.flows import Flow, Sleep
from remoting.frames import ONE_WAY, Command
from remoting.members import Client
from remoting.pulling import read_at
from remoting.records import as_client_reads, frames_of, offset_id, place_of, property_of
from remoting.sending import DELAYS_S
from topicmap.queues import topic_queue

ATTEMPTS_MAX: Final = 16
WATCH_S: Final = 10.0
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


def end_transaction(call: Call) -> Flow:
    """A producer says what becomes of a half."""
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
        "offsetMsgId": offset_id(front.address, row.id),
    }
    body = as_client_reads(record, client.version, front.address) or b""
    return Command(codes.CHECK_TRANSACTION, 0, fields, body, ONE_WAY)
