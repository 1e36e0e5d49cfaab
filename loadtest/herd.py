"""Durable sessions: how fast a herd of them comes back, and what the messages weigh that wait for them.

The sessions are made, each with one subscription to a topic of its own, and left. ``Reconnect`` then lets all of them
come back, ``COMING`` at a time on their way, and looks at the clock when the last one has its CONNACK, which must say
that the session is present. ``Backlog`` publishes the same messages three times: to topics that nobody has subscribed
to, to those of the sessions, and to the first ones again. The first and the last time the server does the same, the
last time with a backlog, and its memory is looked at while it does: what it has not yet moved to disk comes and goes,
so one look says little. In the end some sessions come back and must get exactly what waited for them.
"""

from __future__ import annotations

import select
import statistics
import time
from collections.abc import Sequence
from typing import Final

from loadtest import packets, proc
from loadtest.generator import DRAIN_S, SETUP_BATCH, Outcome, Publisher, Run, settle
from loadtest.packets import Ring
from loadtest.wires import TIMEOUT_S, Failed, Wire

COMING: Final = 100
"""So many are connected and not answered at a time: mosquitto has room for so many that it has not accepted."""
TIMES: Final = 3
WINDOW: Final = 200
CHECKED: Final = 50
LOOKS: Final = 20
"""So often the server's memory is looked at while messages are published; what it needs once has grown by half-time."""


class Herd(Run):
    """What both runs have in common."""

    @property
    def _names(self) -> list[str]:
        return [f"{self._order.run}-{number:05}" for number in range(self._order.sessions)]

    def _make_sessions(self) -> None:
        for start in range(0, self._order.sessions, SETUP_BATCH):
            names = self._names[start : start + SETUP_BATCH]
            wires = [self._come(name) for name in names]
            for wire in wires:
                wire.expect(packets.CONNACK_OK, "CONNACK")
            for wire, name in zip(wires, names, strict=True):
                wire.ask(packets.subscribe(f"herd/{name}"))
            for wire in wires:
                wire.expect(packets.SUBACK_QOS1, "SUBACK")
            self._leave(wires)
        settle(proc.tree(self._order.server_pid))

    def _come(self, name: str) -> Wire:
        wire = self._wire()
        wire.ask(packets.connect(name, clean=False))
        return wire

    def _leave(self, wires: Sequence[Wire]) -> None:
        for wire in wires:
            wire.sock.setblocking(True)
            wire.ask(packets.DISCONNECT)
        for wire in wires:  # until the server has closed too: only then is it sure to have let the session go
            wire.sock.settimeout(TIMEOUT_S)
            while self._inbox.read(wire.sock):
                pass
            wire.sock.close()
            del self._wires[wire]


class Reconnect(Herd):
    """All sessions come back."""

    def perform(self) -> Outcome:
        self._make_sessions()
        server = proc.tree(self._order.server_pid)
        taken, cpu_s, busy = [], [], []
        for _ in range(TIMES):
            before, own, start = proc.cpu_s(server), time.process_time(), time.perf_counter()
            wires = self._all_come()
            taken.append(time.perf_counter() - start)
            busy.append((time.process_time() - own) / taken[-1])
            cpu_s.append(proc.cpu_s(server) - before)
            self._leave(wires)
            settle(server)
        seconds, sessions = statistics.median(taken), self._order.sessions
        return Outcome(
            messages=sessions,
            seconds=seconds,
            rate=sessions / seconds,
            cpu_us=statistics.median(cpu_s) / sessions * 1e6,
            generator_busy=statistics.median(busy),
            checked=TIMES * sessions,
            figures={"reconnect_s": seconds, "server_cpu_s": statistics.median(cpu_s)},
        )

    def _all_come(self) -> list[Wire]:
        """Returns when the last one has its CONNACK."""
        waiting: dict[int, Wire] = {}
        names = iter(self._names)
        done: list[Wire] = []
        deadline = time.perf_counter() + 10 * TIMEOUT_S
        while len(done) < self._order.sessions:
            while len(waiting) < COMING and (name := next(names, None)) is not None:
                wire = self._come(name)
                waiting[wire.sock.fileno()] = wire
                self._poll.register(wire.sock, select.EPOLLIN)
            for fd, _ in self._poll.poll(1.0):
                wire = waiting.pop(fd)
                wire.expect(packets.CONNACK_PRESENT, "CONNACK with session present")
                self._poll.unregister(fd)
                done.append(wire)
            if time.perf_counter() > deadline:
                raise Failed(f"{self._order.sessions - len(done)} sessions were not answered")
        return done


class Backlog(Herd):
    """Messages wait."""

    def perform(self) -> Outcome:
        order = self._order
        self._make_sessions()
        empty = self._rss()
        without = self._publish("before", "nobody/{}")
        began = time.perf_counter()
        coming = self._publish("herd", "herd/{}")
        seconds = time.perf_counter() - began
        waiting = self._publish("after", "nobody/{}")
        without_bytes, with_bytes = (statistics.median(looks[LOOKS // 2 :]) for looks in (without, waiting))
        return Outcome(
            messages=order.messages,
            seconds=seconds,
            rate=order.messages / seconds,
            checked=self._check(),
            figures={
                "sessions_bytes": empty,
                "without_bytes": without_bytes,
                "most_bytes": max(coming),
                "with_bytes": with_bytes,
                "with_without": with_bytes / without_bytes,
                "bytes_per_message": (with_bytes - without_bytes) / order.messages,
            },
        )

    def _rss(self) -> int:
        return proc.rss_bytes(proc.tree(self._order.server_pid))

    def _ring(self, topics: str) -> Ring:
        """One packet for every session, in turn."""
        return Ring(topics, self._order.payload_bytes, self._order.sessions, self._names)

    def _publish(self, name: str, topics: str) -> list[int]:
        """Publishes all messages, in turn to each session's topic; the server's memory on the way, ``LOOKS`` times."""
        wire = self._open("pub", [name])[0]
        publisher = Publisher(wire, self._poll, self._order, self._ring(topics))
        self._add(publisher)
        looks: list[int] = []
        seen, at = -1, 0.0
        while publisher.acked < self._order.messages:
            count = min(WINDOW - (publisher.sent - publisher.acked), self._order.messages - publisher.sent)
            if count > 0:
                publisher.publish(count, 0.0)
            self._turn(time.perf_counter(), 1.0, publishing=False)
            while publisher.acked * LOOKS >= (len(looks) + 1) * self._order.messages:
                looks.append(self._rss())
            if publisher.acked != seen:
                seen, at = publisher.acked, time.perf_counter()
            elif time.perf_counter() - at > DRAIN_S:
                raise Failed(f"{publisher.sent - seen} messages were not acknowledged within {DRAIN_S:.0f} s")
        return looks

    def _check(self) -> int:
        """Some sessions come back and get what waited for them, no more and no less."""
        ring, each = self._ring("herd/{}"), self._order.messages // self._order.sessions
        some = range(0, self._order.sessions, max(1, self._order.sessions // CHECKED))
        for number in some:
            wire = self._come(self._names[number])
            got = b""
            wanted = packets.CONNACK_PRESENT + ring.deliveries[number * ring.size : (number + 1) * ring.size] * each
            while len(got) < len(wanted):
                data = wire.codec.decode(self._inbox.read(wire.sock))
                if not data:
                    raise Failed("the server closed a connection")
                got += data
            acks = ring.acks_of(got[len(packets.CONNACK_PRESENT) :])
            whole = bytearray(got)
            for place in range(len(packets.CONNACK_PRESENT), len(whole), ring.size):
                whole[place + ring.id_at : place + ring.id_at + 2] = b"\x00\x00"
            if whole != wanted:
                raise Failed(f"session {number} did not get the {each} messages that waited for it")
            wire.ask(acks)
            self._leave([wire])
        return len(some) * each
