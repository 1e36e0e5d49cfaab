"""Requests that wait for their reply, on asyncio and on trio.

A producer has one name for all its replies, ``$reply/`` and 64 random bits, whose light queue it opens at every broker:
a reply is stored where its sender's way leads. Each request has correlation data of its own. Replies that come too
late, or for no waiting request, are ignored. What a reply looks like is decided in penstock/protocol/answers.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from penstock.client.discovery import Discovery
from penstock.client.outbox import Outbox
from penstock.client.replies import KEEP_S, LEASE_S, POLL_S, Waiting, lost_its_place, named, opened_at, replies_in
from penstock.client.retry import BackOff
from penstock.client.wire_link import ask
from penstock.errors import PenstockError, TimedOut
from penstock.protocol.message import Message
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.filters import CloseFilters, FiltersKept, KeepFilters, OpenedFilters, OpenFilters
from penstock.protocol.requests.messages import Pull, Pulled
from penstock.protocol.requests.routes import BrokerRoute
from penstock.world import Clock, Rng

FRESH_S: Final = 5.0
"""How often a producer that makes requests asks for the brokers."""
CLOSE_S: Final = 1.0


class Requests:
    """The requests of a producer that wait.

    Args:
        outbox: what is open while the producer is.
    """

    def __init__(self, outbox: Outbox, clock: Clock, rng: Rng) -> None:
        self._outbox = outbox
        self._clock = clock
        self._rng = rng
        self._name, self._owner = named(rng)
        self._waiting: Waiting[anyio.Event] = Waiting(rng)
        self._open: dict[str, anyio.Event] = {}  # by broker: set when its first attempt to open is over
        self._fresh_until = 0.0
        self._back_off = BackOff()

    async def request(
        self, message: Message, limit_s: float, send: Callable[[Message, float], Awaitable[object]]
    ) -> ReceivedMessage:
        """Sends a request and returns its reply. Raises ``TimedOut``, and as ``send``."""
        deadline = self._clock.monotonic() + limit_s
        arrived = anyio.Event()
        correlation = self._waiting.begin(arrived)
        is_sent = False
        try:
            with anyio.move_on_after(limit_s):
                await self._listen()
                asked = self._waiting.message(message, self._name, correlation)
                await send(asked, max(0.0, deadline - self._clock.monotonic()))
                is_sent = True
                await arrived.wait()
        finally:
            reply = self._waiting.end(correlation)
        if reply is None:
            raise TimedOut(
                f"no reply within {limit_s:g} s", hint="the request is stored" if is_sent else "it may be stored"
            )
        return reply

    async def close(self) -> None:
        """Ends the subscription to replies."""
        if not self._open:
            return
        with anyio.move_on_after(CLOSE_S):
            _tasks, discovery = self._outbox.running()
            for route in await discovery.all_brokers():
                if route.broker in self._open:
                    link = discovery.link(route.address)
                    link.submit(CloseFilters(self._owner, (self._name,)), lambda result: None)
                    link.flush()
        self._open.clear()

    async def _listen(self) -> None:
        """Replies arrive from every broker that can be reached now."""
        tasks, discovery = self._outbox.running()
        now = self._clock.monotonic()
        if now >= self._fresh_until:
            for route in await self._brokers(discovery):
                if route.broker not in self._open:
                    self._open[route.broker] = anyio.Event()
                    tasks.start_soon(self._read, route.broker, route.address, discovery)
            self._fresh_until = now + FRESH_S
        for tried in list(self._open.values()):
            await tried.wait()

    async def _read(self, broker: str, address: str, discovery: Discovery) -> None:
        """Takes replies in from a broker, as long as it is there."""
        place, attempt, kept_at = None, 0, 0.0
        tried = self._open[broker]
        while True:
            link = discovery.link(address)
            try:
                if place is None:
                    opened = await ask(link, OpenFilters(self._owner, (self._name,)), OpenedFilters)
                    place, attempt, kept_at = opened_at(opened), 0, self._clock.monotonic()
                    tried.set()
                if self._clock.monotonic() - kept_at > KEEP_S:
                    await ask(link, KeepFilters(self._owner, LEASE_S), FiltersKept)
                    kept_at = self._clock.monotonic()
                pulled = await ask(link, Pull(place.queue, place.offset, wait_s=POLL_S, log_id=place.log_id), Pulled)
                place = place._replace(offset=pulled.next)
            except PenstockError as error:
                tried.set()
                place = None
                if not lost_its_place(error):
                    await anyio.sleep(self._back_off.wait_s(attempt := attempt + 1, self._rng))
                    address = await self._address_of(broker, discovery) or address
                continue
            for reply in replies_in(pulled, broker):
                arrived = self._waiting.take(reply)
                if arrived is not None:
                    arrived.set()

    async def _brokers(self, discovery: Discovery) -> Sequence[BrokerRoute]:
        """All live brokers; none while no name server answers, if some are known already."""
        try:
            return await discovery.all_brokers()
        except PenstockError:
            if not self._open:
                raise
            return ()

    async def _address_of(self, broker: str, discovery: Discovery) -> str:
        try:
            found = await discovery.all_brokers()
        except PenstockError:
            return ""
        return next((route.address for route in found if route.broker == broker), "")
