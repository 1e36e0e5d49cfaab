"""Requests of a producer that leave together: the messages for one broker since the last round, on asyncio and trio.

A quick round has one deadline for all its messages.
"""

from __future__ import annotations

from functools import partial

import anyio

from penstock.client.discovery import Discovery
from penstock.client.faults import Faults
from penstock.client.sending import Outgoing
from penstock.client.ways import AT_ONCE, Way
from penstock.errors import InvalidRequest
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.routes import BrokerRoute
from penstock.world import Clock


class Round:
    """The messages for one broker since the last request to it left, which become one request. ``done`` is set when all
    of it has its result; every send in it waits for that.

    A *quick* one has single messages that all wait for ``quick_s``, so that one deadline does for all: ``until``, in
    the loop's time. ``watched``: the quick ones without a result.
    """

    __slots__ = ("_watched", "bytes", "count", "done", "outgoing", "quick_s", "until", "way")

    def __init__(self, watched: dict[Round, None], quick_s: float | None, way: Way) -> None:
        self.way = way
        self.outgoing: list[Outgoing] = []
        self.bytes = self.count = 0
        self.done = anyio.Event()
        self.quick_s = quick_s
        self.until = 0.0
        self._watched = watched
        if quick_s is not None:
            self.until = anyio.current_time() + quick_s
            watched[self] = None

    def settle(self, broker: str, result: Result) -> None:
        self.way.settle(self.outgoing, broker, result)
        self._watched.pop(self, None)
        self.done.set()

    def abandon(self, one: Outgoing) -> None:
        """The answer for a message is waited for no more: it means nothing to it."""
        self.outgoing[self.outgoing.index(one)] = Outgoing(one.at, one.run, one.topic, one.key)


class Lanes:
    """The open requests of each broker."""

    def __init__(self, discovery: Discovery, faults: Faults, clock: Clock) -> None:
        self._discovery = discovery
        self._faults = faults
        self._clock = clock
        self._open: dict[BrokerRoute, list[Round]] = {}
        self._watched: dict[Round, None] = {}
        self._some = anyio.Event()  # set when there is something to watch
        self._wanted = anyio.Event()  # set when there is something to flush

    def hand_over(self, broker: BrokerRoute, one: Outgoing, quick_s: float | None = None, way: Way = AT_ONCE) -> Round:
        """Has ``one`` sent with this round's requests, which leave when every task that can run has run. ``quick_s``:
        how long a single message waits."""
        if not self._open:
            self._wanted.set()
        rounds = self._open.setdefault(broker, [])
        last = rounds[-1] if rounds else None
        if last is None or last.quick_s != quick_s or last.way is not way or not way.fits(last.bytes, last.count, one):
            last = Round(self._watched, quick_s, way)
            rounds.append(last)
            if quick_s is not None:
                self._some.set()
        last.outgoing.append(one)
        last.bytes += one.run.size
        last.count += one.count
        return last

    async def watch(self) -> None:
        """Ends quick rounds that have no result in time."""
        while True:
            if not self._watched:
                self._some = anyio.Event()
                await self._some.wait()
                continue
            first = min(self._watched, key=lambda one: one.until)
            left_s = first.until - anyio.current_time()
            if left_s > 0:
                await anyio.sleep(left_s)
            else:
                del self._watched[first]
                first.done.set()

    def close(self) -> None:
        """Ends the lane."""
        for one in self._watched:
            one.done.set()
        self._watched.clear()

    async def keep_flushing(self) -> None:
        """Sends messages that are handed over."""
        while True:
            if not self._open:
                self._wanted = anyio.Event()
                await self._wanted.wait()
            self.flush()

    def flush(self) -> None:
        """Sends messages at once: for many together, to which others would add little."""
        lanes, self._open = self._open, {}
        for broker, rounds in lanes.items():
            link = self._discovery.link(broker.address)
            began = self._clock.monotonic()
            for one in rounds:
                try:
                    link.submit(one.way.request(one.outgoing), partial(self._answered, one, broker, began))
                except Exception as error:  # a defect of this request: the others leave
                    one.settle(broker.broker, InvalidRequest(f"the messages cannot be sent: {error!r}"))
            link.flush()

    def _answered(self, one: Round, broker: BrokerRoute, began: float, result: Result) -> None:
        now = self._clock.monotonic()
        self._faults.answered(broker.address, now - began, now)
        one.settle(broker.broker, result)
