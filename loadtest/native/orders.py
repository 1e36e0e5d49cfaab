"""What the processes of the benchmark hand each other: an order, what was seen, and bodies that can be checked."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from loadtest import proc
from loadtest.wires import Failed

NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Order:
    """What to do: a scenario's fields (``scenarios.py``), where, how long, on which core and which event loop.
    ``servers``: address of the name server. ``server_pid``: the broker's process."""

    servers: str
    server_pid: int
    kind: str
    topic: str
    group: str
    batch: int
    tasks: int
    body_bytes: int
    messages: int
    warm_s: float
    measure_s: float
    core: int
    loop: str = "asyncio"
    filter: str = ""


@dataclass(slots=True)
class Outcome:
    """What was seen: ``messages`` in ``seconds``, processor microseconds of each side per message, the share of its
    core that each was busy. ``checked``: messages that were read and compared with what had to come. ``late_s``: at
    most that late came 99 of 100 delayed messages. ``figures``: what only some kinds of load have."""

    error: str = ""
    messages: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    client_us: float = 0.0
    broker_us: float = 0.0
    client_busy: float = 0.0
    broker_busy: float = 0.0
    checked: int = 0
    late_s: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the clock, at processor times in seconds, and at how many messages are done."""

    at: float
    client_s: float
    broker_s: float
    done: int

    def until(self, end: Look) -> Outcome:
        """What happened between this look and a later one. Raises ``Failed`` if that is nothing."""
        messages, seconds = end.done - self.done, end.at - self.at
        if messages <= 0:
            raise Failed(f"no message was done in {seconds:.1f} s")
        client_s, broker_s = end.client_s - self.client_s, end.broker_s - self.broker_s
        return Outcome(
            messages=messages,
            seconds=seconds,
            rate=messages / seconds,
            client_us=client_s / messages * 1e6,
            broker_us=broker_s / messages * 1e6,
            client_busy=client_s / seconds,
            broker_busy=broker_s / seconds,
        )


class Meter:
    """The window that is measured: it begins ``warm_s`` after the first question and has ``measure_s``."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._broker = proc.tree(order.server_pid)
        self._begin_at = 0.0
        self._first: Look | None = None
        self._last: Look | None = None

    def look(self, done: int) -> Look:
        return Look(time.perf_counter(), time.process_time(), proc.cpu_s(self._broker), done)

    def goes_on(self, done: int) -> bool:
        """Whether the window is still open; asked often, with how many messages are done."""
        now = time.perf_counter()
        if not self._begin_at:
            self._begin_at = now + self._order.warm_s
        if self._first is None:
            if now >= self._begin_at:
                self._first = self.look(done)
        elif self._last is None and now >= self._first.at + self._order.measure_s:
            self._last = self.look(done)
        return self._last is None

    @property
    def first(self) -> Look:
        assert self._first is not None
        return self._first

    def outcome(self) -> Outcome:
        """What was seen in the window, once it is closed."""
        assert self._last is not None
        return self.first.until(self._last)


class Bodies:
    """Bodies of a run: a number, which tells each from all others, and zeros behind it."""

    def __init__(self, size: int) -> None:
        self._rest = bytes(size - NUMBER_BYTES)

    def make(self, number: int) -> bytes:
        return number.to_bytes(NUMBER_BYTES, "big") + self._rest

    @staticmethod
    def number(body: bytes) -> int:
        """Which message a body is of."""
        return int.from_bytes(body[:NUMBER_BYTES], "big")

    def check(self, bodies: Iterable[bytes], count: int) -> int:
        """Says that all numbers below ``count`` came, each once and unchanged. Raises ``Failed``."""
        seen = bytearray(count)
        for body in bodies:
            number = self.number(body)
            if body[NUMBER_BYTES:] != self._rest or number >= count:
                raise Failed(f"a body that was not sent: {body[:40]!r}")
            if seen[number]:
                raise Failed(f"message {number} came twice")
            seen[number] = 1
        missing = count - sum(seen)
        if missing:
            raise Failed(f"{missing} of {count} messages did not come, the first is {seen.index(0)}")
        return count
