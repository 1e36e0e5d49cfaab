"""Requests of all kinds in a row, as producers, gateways and groups might send them, good and bad ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType

from penstock.protocol.message import (
    CLIENT_ID,
    FLAG_ONCE,
    FLAG_RETAIN,
    FLAG_SEQUENCED,
    KEYS,
    MQTT_ID,
    MQTT_TOPIC,
    UNIQUE_KEY,
    decode_batch,
    encode_properties,
    encode_record,
    record_tail,
)
from penstock.protocol.requests.filters import CloseFilters, KeepFilters, OpenFilters
from penstock.protocol.requests.groups import (
    Assignment,
    CommitOffsets,
    HoldOffsets,
    JoinGroup,
    LeaveGroup,
    Progress,
    QueueOffset,
)
from penstock.protocol.requests.messages import Append, AppendRuns, Pulled
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.retries import SendBack
from penstock.protocol.requests.sessions import (
    CONNECTED,
    GONE,
    LOST,
    RELEASED,
    CloseSession,
    EndGatewayEpochs,
    EndSession,
    KeepSessions,
    OpenedSession,
    OpenSession,
    ReleaseExchanges,
    SaveSessions,
    SessionSave,
)
from penstock.protocol.requests.shares import SettleShared, TakeShared
from penstock.protocol.requests.timers import CancelTimer, SetTimers, TimersSet
from penstock.protocol.requests.topics import CreateTopic, DeleteTopic
from penstock.protocol.requests.transactions import (
    BeginHalf,
    BeginHalves,
    EndHalves,
    HalfBegun,
    HalfOutcome,
    HalvesBegun,
)
from penstock.protocol.runs import DIGITS, Run, checksum_of, encode_runs
from tests.broker.broker_rig import Rig

TOPICS = ("a", "b", "c")
FILTERS = ("a/#", "a/+", "b/x", "#", "$share/s/a/#", "$oshare/o/b/#")
OWNERS = ("g1", "g2")
CLIENTS = ("d1", "d2", "d3")
GROUPS = ("p", "q")


class Mix:
    """Draws requests and learns from their answers."""

    def __init__(self, rig: Rig, rng: random.Random) -> None:
        self.rig = rig
        self.rng = rng
        self.sessions: dict[str, OpenedSession] = {}
        self.generations: dict[str, int] = {}
        self.timers: list[tuple[int, int]] = []
        self.halves: list[int] = []
        self.numbers: dict[str, int] = {}
        self.taken: dict[str, list[int]] = {}
        self.kinds: list[Callable[[], Request]] = [
            self.append, self.append, self.append, self.retain, self.exchange, self.runs, self.create, self.delete,
            self.sequenced, self.sequenced,
            self.open, self.open, self.close, self.keep_filters, self.join, self.leave, self.commit, self.commit_alone,
            self.hold, self.send_back, self.open_session, self.open_session, self.save, self.save, self.close_session,
            self.end_session, self.release, self.keep_sessions, self.end_gateway_epochs, self.take, self.settle,
            self.set_timer, self.cancel_timer, self.begin_half, self.begin_one_half, self.end_half,
        ]  # fmt: skip

    def step(self) -> None:
        """One request, and perhaps a sync, a tick, or another leadership."""
        rng, rig = self.rng, self.rig
        answers = rig.submit(rng.choice(self.kinds)())
        if rng.random() < 0.6:
            rig.sync()
        if answers:
            self.learn(answers[0])
        if rng.random() < 0.2:
            rig.clock.now += rng.choice([0.05, 0.1, 1.0, 20.0, 200.0])
            for _ in range(4):
                rig.lead.tick()
                rig.sync()
        if rng.random() < 0.01:
            rig.lead_again()

    def learn(self, answer: object) -> None:
        """What later requests can name."""
        if isinstance(answer, OpenedSession):
            self.sessions[self.client] = answer
        elif isinstance(answer, Assignment):
            self.generations[self.group] = answer.generation
        elif isinstance(answer, TimersSet):
            self.timers += [(one.id, one.due_ms) for one in answer.timers]
        elif isinstance(answer, HalvesBegun):
            self.halves += answer.ids
        elif isinstance(answer, HalfBegun):
            self.halves.append(answer.id)
        elif isinstance(answer, Pulled):
            self.taken[self.share] = [offset for offset, _ in decode_batch(answer.count, answer.body)]

    def one_of(self, some: tuple[str, ...]) -> str:
        return self.rng.choice(some)

    def record(self, flag: int = 0, more: Mapping[str, str] = MappingProxyType({})) -> bytes:
        topic = self.one_of(TOPICS)
        body = self.rng.randbytes(self.rng.choice([0, 5, 200]))
        properties = {MQTT_TOPIC: f"{topic}/{self.one_of(('x', 'y', 'x/z'))}", **more}
        return encode_record(topic.encode(), body, encode_properties(properties), flag=flag)

    # ------------------------------------------------------------ messages and topics

    def append(self) -> Request:
        count = self.rng.randint(1, 4)
        return Append(count, False, b"".join(self.record() for _ in range(count)))

    def retain(self) -> Request:
        return Append(1, False, self.record(FLAG_RETAIN | self.rng.randint(0, 1)))

    def exchange(self) -> Request:
        client = self.one_of(CLIENTS)
        session = self.sessions.get(client)
        known = (session.generation, session.epoch) if session else (1, 1)
        id = f"{known[0]}:{known[1]}:{self.rng.randint(1, 4)}"
        return Append(1, False, self.record(FLAG_ONCE | 2, {CLIENT_ID: client, MQTT_ID: id}))

    def runs(self) -> Request:
        return AppendRuns(1, self.rng.randrange(1 << 32), self.rng.randbytes(30), "life", 0)  # garbage

    def sequenced(self) -> Request:
        """Messages of a producer, some of which it may have sent before."""
        rng, runs = self.rng, []
        for _ in range(rng.randint(1, 3)):
            producer = self.one_of(("0123456789abcdef-", "p-"))
            first = max(0, self.numbers.get(producer, 1) - rng.choice([0, 0, 0, 3]))
            count = rng.choice([1, 1, 3])
            self.numbers[producer] = first + count + rng.choice([0, 0, 2])
            properties = {KEYS: self.one_of(("k", "l")), UNIQUE_KEY: f"{producer}{first:0{DIGITS}x}"}
            tail = record_tail(self.one_of(TOPICS).encode(), encode_properties(properties))
            flag = FLAG_SEQUENCED | rng.choice([0, 0, FLAG_RETAIN])
            runs.append(Run(tail, flag, 0, [rng.randbytes(4) for _ in range(count)], True))
        body = encode_runs(runs)
        return AppendRuns(sum(len(run.bodies) for run in runs), checksum_of(body), body, detail=True)

    def create(self) -> Request:
        return CreateTopic(self.one_of(TOPICS), self.rng.randint(1, 5), self.one_of(("disk", "cache")))

    def delete(self) -> Request:
        return DeleteTopic(self.one_of(TOPICS))

    # ------------------------------------------------------------ filters and groups

    def some_filters(self) -> tuple[str, ...]:
        return tuple(self.rng.sample(FILTERS, self.rng.randint(1, 3)))

    def open(self) -> Request:
        return OpenFilters(self.one_of(OWNERS), self.some_filters())

    def close(self) -> Request:
        return CloseFilters(self.one_of(OWNERS), self.some_filters())

    def keep_filters(self) -> Request:
        return KeepFilters(self.one_of(OWNERS), self.rng.choice([1.0, 100.0]))

    def join(self) -> Request:
        self.group = self.one_of(GROUPS)
        return JoinGroup(self.group, "m", TOPICS[:2], 30.0)

    def leave(self) -> Request:
        return LeaveGroup(self.one_of(GROUPS), "m")

    def places(self) -> tuple[QueueOffset, ...]:
        queue = self.one_of(("a:0", "a:1", "b:0", "~filter:a/#", "~filter:#"))
        return (QueueOffset(queue, self.rng.randrange(20)),)

    def commit(self) -> Request:
        group = self.one_of(GROUPS)
        return CommitOffsets(group, "m", self.generations.get(group, 0), self.places())

    def commit_alone(self) -> Request:
        return CommitOffsets(self.one_of(("r", "s")), "", 0, self.places())

    def hold(self) -> Request:
        [place] = self.places()
        return HoldOffsets("h", self.one_of(OWNERS), 30.0, (Progress(*place, *[0] * (len(Progress._fields) - 2)),))

    def send_back(self) -> Request:
        group = self.one_of(GROUPS)
        generation = self.generations.get(group, 0)
        return SendBack(group, "m", generation, "a:0", self.rng.randrange(3), 1000, 2, "no")

    # ------------------------------------------------------------ sessions

    def open_session(self) -> Request:
        self.client = self.one_of(CLIENTS)
        rng = self.rng
        clean, expiry_s = rng.random() < 0.3, rng.choice([0, 60, 1000])
        return OpenSession(self.one_of(OWNERS), self.client, clean, expiry_s, rng.choice([b"", b"will"]), force=True)

    def epoch_of(self, client: str) -> int:
        session = self.sessions.get(client)
        return session.epoch if session is not None and self.rng.random() < 0.9 else 1

    def save(self) -> Request:
        client, state = self.one_of(CLIENTS), self.rng.choice([CONNECTED, GONE, RELEASED, LOST])
        terms, flow = self.rng.choice([b"", b"terms"]), self.rng.randbytes(3)
        save = SessionSave(client, self.epoch_of(client), state, 60, b"", terms, flow)
        return SaveSessions(self.one_of(OWNERS), (save,))

    def close_session(self) -> Request:
        client = self.one_of(CLIENTS)
        return CloseSession(client, self.epoch_of(client), force=True)

    def end_session(self) -> Request:
        client = self.one_of(CLIENTS)
        return EndSession(client, self.epoch_of(client))

    def release(self) -> Request:
        client = self.one_of(CLIENTS)
        session = self.sessions.get(client)
        generation = session.generation if session else 1
        ids = tuple(self.rng.sample(range(1, 5), self.rng.randint(0, 2)))
        return ReleaseExchanges(client, generation, ids, self.rng.random() < 0.2, self.epoch_of(client))

    def keep_sessions(self) -> Request:
        life = f"life {self.rng.randint(1, 3)}"
        return KeepSessions(self.one_of(OWNERS), self.rng.choice([1.0, 100.0]), self.rng.random() < 0.3, life)

    def end_gateway_epochs(self) -> Request:
        return EndGatewayEpochs((f"life {self.rng.randint(1, 3)}",))

    # ------------------------------------------------------------ shares, timers, transactions

    def take(self) -> Request:
        self.share = self.one_of(FILTERS[4:])
        return TakeShared(self.share, self.one_of(OWNERS), 3)

    def settle(self) -> Request:
        share = self.one_of(FILTERS[4:])
        offsets = self.taken.get(share, [0, 1])
        return SettleShared(share, self.one_of(OWNERS), tuple(offsets), ())

    def set_timer(self) -> Request:
        delay_ms = self.rng.choice([10, 1000, 100_000])
        return SetTimers((delay_ms,), True, self.record())

    def cancel_timer(self) -> Request:
        return CancelTimer(*(self.rng.choice(self.timers) if self.timers else (1, 1)))

    def begin_half(self) -> Request:
        return BeginHalves(self.one_of(GROUPS), 1, self.record())

    def begin_one_half(self) -> Request:
        bodies = [b"%d" % self.rng.randrange(10) for _ in range(self.rng.randrange(1, 4))]
        body = encode_runs([Run(record_tail(self.one_of(TOPICS).encode(), b""), 0, 1, bodies)])
        return BeginHalf(self.one_of(GROUPS), len(bodies), checksum_of(body), body)

    def end_half(self) -> Request:
        id = self.rng.choice(self.halves) if self.halves else 1
        return EndHalves(self.one_of(GROUPS), (HalfOutcome(id, self.one_of(("commit", "rollback", "unknown"))),))
