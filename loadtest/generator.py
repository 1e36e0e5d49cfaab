"""The load generator: one loop, raw non-blocking sockets (``python -m loadtest.run`` is its process).

Closed loop: a publisher stops at ``window`` unacknowledged packets, and when its slowest subscriber is ``lag`` messages
behind. After ``warm_s`` it measures for ``measure_s``, then stops publishing and waits until every packet is
acknowledged and delivered. Every byte that comes is compared with what must come (``packets.Ring``): a missing,
doubled, changed or misplaced message fails the run. Times are taken once per batch; percentiles weigh each batch by its
messages. It looks at its own processor time too: where it was busy all the time, the server may be faster than what it
could see.

The other kinds of load (``paced``, ``herd``, ``many_filters``, ``shared``) are built from the same connections. All of
them compile with the hot modules (``make compile``): what the generator takes for a message is time in which no server
is seen to be faster.
"""

from __future__ import annotations

import select
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from loadtest import packets, proc
from loadtest.packets import Ring
from loadtest.wires import TCP, TIMEOUT_S, Failed, Inbox, Plain, Wire

SETUP_BATCH: Final = 50
SETUP_S: Final = TIMEOUT_S
DRAIN_S: Final = 10.0
SETTLE_S: Final = 3.0
QUIET_S: Final = 0.15
QUIET_SHARE: Final = 0.2
RING_PACKETS_FEW: Final = 4096
RING_PACKETS_MANY: Final = 64
BUFFER_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Order:
    """What to do: a scenario's fields (``scenarios.py``), where, how long. ``port``: of the scenario's wire."""

    host: str
    port: int
    server_pid: int
    run: str
    publishers: int
    subscribers: int
    window: int
    lag: int
    payload_bytes: int
    warm_s: float
    measure_s: float
    core: int
    kind: str = "closed"
    wire: str = TCP
    per_s: int = 0
    sessions: int = 0
    messages: int = 0
    filters: int = 0
    slow: bool = False
    idle: bool = False


@dataclass(slots=True)
class Outcome:
    """What was seen. Rates are messages acknowledged, or with subscribers delivered, per second of measured time.
    ``figures``: what only some kinds of load have, by name."""

    error: str = ""
    messages: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    cpu_us: float = 0.0
    generator_busy: float = 0.0
    idle_bytes: float = 0.0
    checked: int = 0
    figures: dict[str, float] = field(default_factory=dict)


class Connection:
    """A socket with what could not be sent yet."""

    __slots__ = ("_poll", "_unsent", "codec", "sock")

    def __init__(self, wire: Wire, poll: select.epoll) -> None:
        self.sock = wire.sock
        self.codec = None if type(wire.codec) is Plain else wire.codec
        self._poll = poll
        self._unsent = b""

    def send(self, data: bytes) -> None:
        self._send(data if self.codec is None else self.codec.encode(data))

    def _send(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._unsent = data[sent:]
            self._poll.modify(self.sock, select.EPOLLIN | select.EPOLLOUT)

    def send_rest(self) -> None:
        data, self._unsent = self._unsent, b""
        self._send(data)
        if not self._unsent:
            self._poll.modify(self.sock, select.EPOLLIN)

    def receive(self, data: bytes, now: float) -> None:
        """Takes what has come."""
        raise NotImplementedError


class Publisher(Connection):
    """Publishes a ring, counts acknowledgements. ``sends`` has per batch the number after its last packet, and when."""

    __slots__ = ("_at", "_order", "_rest", "acked", "deliveries", "latencies", "ring", "sends", "sent")

    def __init__(self, wire: Wire, poll: select.epoll, order: Order, ring: Ring) -> None:
        super().__init__(wire, poll)
        self._order = order
        self._rest = b""
        self._at = 0
        self.ring = ring
        self.sent = self.acked = 0
        self.sends: list[tuple[int, float]] = []
        self.latencies: list[tuple[float, int]] = []
        self.deliveries: list[Delivered] = []

    def pump(self, now: float) -> None:
        """Sends what the window and the slowest subscriber allow."""
        count = self._order.window - (self.sent - self.acked)
        if self.deliveries:
            slowest = min([delivered.received for delivered in self.deliveries])
            count = min(count, self._order.lag - (self.sent - slowest))
        if count > 0:
            self.publish(count, now)

    def publish(self, count: int, at: float) -> None:
        """Sends so many; their time counts from ``at``."""
        data = self.ring.cut(self.ring.packets, self.ring.size, self.sent, count)
        self.sent += count
        self.sends.append((self.sent, at))
        self.send(data)

    def receive(self, data: bytes, now: float) -> None:
        if self._rest:
            data = self._rest + data
        count = len(data) // 4
        if data[: count * 4] != self.ring.cut(self.ring.acks, 4, self.acked, count):
            raise Failed(
                f"the server's PUBACKs are not those of packets {self.acked} and following: {data[:24].hex(' ')}"
            )
        self._rest = data[count * 4 :]
        self.acked += count
        if self.acked > self.sent:
            raise Failed("more PUBACKs than packets")
        self._at = _latencies(self.sends, self._at, self.acked - count, self.acked, now, self.latencies)


class Delivered:
    """What one subscriber, or several that share it, has got of a publisher's messages."""

    __slots__ = ("latencies", "publisher", "received")

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.received = 0
        self.latencies: list[tuple[float, int]] = []
        publisher.deliveries.append(self)


class Subscriber(Connection):
    """Receives one publisher's packets, checks and acknowledges them."""

    __slots__ = ("_at", "_rest", "delivered")

    def __init__(self, wire: Wire, poll: select.epoll, publisher: Publisher) -> None:
        super().__init__(wire, poll)
        self._rest = b""
        self._at = 0
        self.delivered = Delivered(publisher)

    def receive(self, data: bytes, now: float) -> None:
        if self._rest:
            data = self._rest + data
        delivered = self.delivered
        publisher = delivered.publisher
        ring = publisher.ring
        count = len(data) // ring.size
        whole = bytearray(data[: count * ring.size])
        self._rest = data[count * ring.size :]
        if not count:
            return
        acks = ring.acks_of(whole)
        first, end = delivered.received, delivered.received + count
        if not ring.is_delivery(whole, first):
            raise Failed(_difference(data, ring, first))
        delivered.received = end
        if end > publisher.sent:
            raise Failed("more deliveries than packets")
        self.send(acks)
        self._at = _latencies(publisher.sends, self._at, first, end, now, delivered.latencies)


def _difference(data: bytes, ring: Ring, expected: int) -> str:
    """What is wrong with deliveries: the first packet that is not the one that must come."""
    for place in range(0, len(data), ring.size):
        packet = bytearray(data[place : place + ring.size])
        if len(packet) < ring.size or not ring.is_delivery(bytearray(packet), expected + place // ring.size):
            at = ring.id_at + 2
            number = int.from_bytes(packet[at : at + packets.SEQUENCE_BYTES], "big")
            must = (expected + place // ring.size) % ring.count
            return f"message {must} of the ring must come, but this came (as number {number}): {packet[:32].hex(' ')}"
    return "deliveries differ"


def _latencies(
    sends: list[tuple[int, float]], at: int, first: int, end: int, now: float, into: list[tuple[float, int]]
) -> int:
    """Adds the time that packets ``first`` to ``end`` took, by the batches in which they were sent; returns the batch
    reached."""
    while first < end:
        batch_end, sent_at = sends[at]
        count = min(end, batch_end) - first
        into.append((now - sent_at, count))
        first += count
        if first == batch_end:
            at += 1
    return at


def percentile(latencies: list[tuple[float, int]], share: float) -> float:
    """The latency that ``share`` of all messages do not exceed, in microseconds; 0 without any."""
    total = sum(count for _, count in latencies)
    seen = 0
    for latency, count in sorted(latencies):
        seen += count
        if seen >= share * total:
            return latency * 1e6
    return 0.0


# ---------------------------------------------------------------- a run


class Run:
    """One run of one order, with a closed loop."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._poll = select.epoll()
        self._inbox = Inbox()
        self._wires: dict[Wire, None] = {}
        self._by_fd: dict[int, Connection] = {}
        self._publishers: list[Publisher] = []
        self._deliveries: list[Delivered] = []

    def perform(self) -> Outcome:
        """Connects, warms up, measures, waits for the last message."""
        self._connect()
        settle(proc.tree(self._order.server_pid))
        outcome = self._measure()
        outcome.checked = self._counted()
        return outcome

    def _measure(self) -> Outcome:
        """Measures for a while; when it is over nothing is on its way any more."""
        server = proc.tree(self._order.server_pid)
        self._work(self._order.warm_s)
        self._forget_latencies()
        cpu_s, own_s, start = proc.cpu_s(server), time.process_time(), time.perf_counter()
        before = self._counted()
        self._work(self._order.measure_s)
        self._await_one_more(before)
        seconds = time.perf_counter() - start
        own_s, cpu_s = time.process_time() - own_s, proc.cpu_s(server) - cpu_s
        messages = self._counted() - before
        timed = [one.latencies for one in self._deliveries] or [one.latencies for one in self._publishers]
        latencies = [entry for entries in timed for entry in entries]
        if not proc.tree(self._order.server_pid):
            raise Failed("the server ended during the run")
        self._drain()
        if not messages:
            raise Failed("no message came through in the measured time")
        return Outcome(
            messages=messages,
            seconds=seconds,
            rate=messages / seconds,
            p50_us=percentile(latencies, 0.5),
            p99_us=percentile(latencies, 0.99),
            cpu_us=cpu_s / messages * 1e6,
            generator_busy=own_s / seconds,
        )

    def close(self) -> None:
        """Says goodbye on every connection and closes it."""
        for wire in self._wires:
            with suppress(OSError):
                wire.sock.send(wire.codec.encode(packets.DISCONNECT))
            wire.sock.close()
        self._poll.close()

    # ------------------------------------------------------------ connections

    def _connect(self) -> None:
        order = self._order
        topics = [f"load/{order.run}/{number}" for number in range(order.publishers)]
        count = RING_PACKETS_FEW if order.publishers == 1 else max(RING_PACKETS_MANY, 2 * order.window)
        for wire, topic in zip(self._open("pub", topics), topics, strict=True):
            self._add(Publisher(wire, self._poll, order, Ring(topic, order.payload_bytes, count)))
        wanted = [(publisher, topic) for publisher, topic in zip(self._publishers, topics, strict=True)]
        wanted = [one for one in wanted for _ in range(order.subscribers)]
        names = [f"{topic}/{number}" for number, (_, topic) in enumerate(wanted)]
        for wire, (publisher, _) in zip(self._open("sub", names, [topic for _, topic in wanted]), wanted, strict=True):
            self._add(Subscriber(wire, self._poll, publisher))

    def _add(self, one: Connection) -> None:
        if isinstance(one, Publisher):
            self._publishers.append(one)
        elif isinstance(one, Subscriber):
            self._deliveries.append(one.delivered)
        self._by_fd[one.sock.fileno()] = one
        self._poll.register(one.sock, select.EPOLLIN)

    def _open(self, role: str, names: list[str], filters: list[str] | None = None) -> list[Wire]:
        """Connections, a batch at a time, so that no server's backlog overflows."""
        opened: list[Wire] = []
        for start in range(0, len(names), SETUP_BATCH):
            batch = [self._wire() for _ in names[start : start + SETUP_BATCH]]
            for wire, name in zip(batch, names[start:], strict=False):
                wire.ask(packets.connect(f"{role}-{name.replace('/', '-')}"))
            for wire in batch:
                wire.expect(packets.CONNACK_OK, "CONNACK")
            for wire, filter in zip(batch, (filters or [])[start:], strict=False):
                wire.ask(packets.subscribe(filter))
            for wire in batch if filters else []:
                wire.expect(packets.SUBACK_QOS1, "SUBACK")
            opened += batch
        for wire in opened:
            wire.sock.setblocking(False)
        return opened

    def _wire(self) -> Wire:
        order = self._order
        wire = Wire(order.host, order.port, order.wire, BUFFER_BYTES if order.publishers == 1 else 0)
        self._wires[wire] = None
        return wire

    # ------------------------------------------------------------ the loop

    def _work(self, for_s: float) -> None:
        now = time.perf_counter()
        end = now + for_s
        for publisher in self._publishers:
            publisher.pump(now)
        while now < end:
            self._turn(now, end - now, publishing=True)
            now = time.perf_counter()

    def _await_one_more(self, before: int) -> None:
        """A time that was too short for a single message lasts until one comes, but not for ever."""
        deadline = time.perf_counter() + DRAIN_S
        while self._counted() == before and time.perf_counter() < deadline:
            self._turn(time.perf_counter(), 0.05, publishing=True)

    def _turn(self, now: float, wait_s: float, *, publishing: bool) -> None:
        """Takes what is there. Publishers that got acknowledgements send on; with subscribers all look once a turn."""
        clock = time.perf_counter
        for fd, event in self._poll.poll(wait_s):
            connection = self._by_fd[fd]
            if event & select.EPOLLOUT:
                connection.send_rest()
            if event & ~select.EPOLLOUT:
                data = self._inbox.read(connection.sock)
                if not data:
                    raise Failed("the server closed a connection")
                now = clock()
                if connection.codec is not None:
                    data = connection.codec.decode(data)
                connection.receive(data, now)
                if publishing and not self._deliveries and isinstance(connection, Publisher):
                    connection.pump(now)
        if publishing and self._deliveries:
            for publisher in self._publishers:
                publisher.pump(now)

    def _drain(self) -> None:
        deadline = time.perf_counter() + DRAIN_S
        while self._missing() and time.perf_counter() < deadline:
            self._turn(time.perf_counter(), 0.05, publishing=False)
        self._turn(time.perf_counter(), 0.05, publishing=False)  # what comes twice would come now
        missing = self._missing()
        if missing:
            raise Failed(f"{missing} messages were not acknowledged or delivered within {DRAIN_S:.0f} s")

    def _missing(self) -> int:
        unacknowledged = sum(one.sent - one.acked for one in self._publishers)
        return unacknowledged + sum(one.publisher.sent - one.received for one in self._deliveries)

    def _counted(self) -> int:
        if self._deliveries:
            return sum(one.received for one in self._deliveries)
        return sum(one.acked for one in self._publishers)

    def _forget_latencies(self) -> None:
        for publisher in self._publishers:
            publisher.latencies.clear()
        for delivered in self._deliveries:
            delivered.latencies.clear()


class Idle(Run):
    """Connections with one subscription each: how much the server's memory grows."""

    def perform(self) -> Outcome:
        server = proc.tree(self._order.server_pid)
        settle(server)
        before = proc.rss_bytes(server)
        filters = [f"idle/{self._order.run}/{number}" for number in range(self._order.publishers)]
        self._open("idle", filters, filters)
        settle(server)
        growth = proc.rss_bytes(proc.tree(self._order.server_pid)) - before
        return Outcome(idle_bytes=growth / self._order.publishers, checked=len(filters))


def settle(server: list[int]) -> None:
    """Waits until the server has done what earlier connections left it to do, but not for ever."""
    for _ in range(int(SETTLE_S / QUIET_S)):
        before = proc.cpu_s(server)
        time.sleep(QUIET_S)
        if proc.cpu_s(server) - before <= QUIET_S * QUIET_SHARE:
            return
