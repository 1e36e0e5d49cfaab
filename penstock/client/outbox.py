"""The attempts of a producer to have messages stored, on asyncio and trio.

One deadline covers all attempts of a send. The number of messages under way is bounded: further sends wait for room.
Messages without a key avoid a broker that failed for a while. penstock/client/sending.py and penstock/client/ways.py
decide; this module waits.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar, TypeVarTuple

import anyio
import anyio.lowlevel

from penstock.client import sending, ways
from penstock.client.arguments import check_seconds
from penstock.client.credentials import Credentials
from penstock.client.discovery import Discovery
from penstock.client.faults import Faults, attempt_s
from penstock.client.lanes import Lanes, Round
from penstock.client.retry import BackOff, Telling, worth_another_try
from penstock.client.sending import Outgoing, settled
from penstock.client.task_scope import TaskScope
from penstock.client.ways import AT_ONCE, Way
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import Busy, InvalidRequest, NoRoute, NotAllowed, PenstockError, TimedOut, Unavailable
from penstock.protocol.link import Links
from penstock.protocol.requests.request import Reply, Request
from penstock.world import Clock, Rng

MANY: Final = 32
"""Messages that are handed over together and are not fewer leave at once."""
ONEWAY_S: Final = 2.0
"""How long the end of the block waits for answers that no send awaits."""

_R = TypeVar("_R", bound=Reply)
_Ts = TypeVarTuple("_Ts")
_log = logging.getLogger("penstock.client.producer")  # what programs know


class Outbox:
    """The messages that a producer has under way."""

    def __init__(
        self,
        servers: str | Sequence[str],
        timeout_s: float,
        pending_max: int,
        links: Links | None,
        credentials: Credentials,
        clock: Clock,
        rng: Rng,
        number: Callable[[Outgoing], None],
        failover: bool,
    ) -> None:
        """``number`` gives messages that go to a broker their ids. ``failover``: messages without a key may go to
        another broker than the one that may have them."""
        self._number = number
        self._failover = failover
        self.timeout_s = timeout_s
        self._servers = servers
        self._links = links
        self._credentials = credentials
        self._clock = clock
        self._rng = rng
        self._back_off = BackOff()
        self._faults = Faults()
        self._turn = 0
        self._pending = 0
        self._pending_max = pending_max
        self._room = anyio.Event()
        self._under_way = 0
        self._started = 0
        self._unheard: list[Round] = []  # with messages for which no answer is awaited
        self._ended = anyio.Event()
        self._tasks: TaskScope | None = None
        self._discovery: Discovery | None = None
        self._lanes: Lanes | None = None

    async def open(self) -> tuple[TaskScope, Discovery]:
        """Makes sends possible; the tasks that live until it is closed, and what knows the brokers."""
        self._tasks = TaskScope()
        await self._tasks.open()
        links = self._links or WireLinks(self._tasks, clock=self._clock, rng=self._rng, credentials=self._credentials)
        self._discovery = Discovery(self._servers, links, clock=self._clock)
        self._lanes = Lanes(self._discovery, self._faults, self._clock)
        self._tasks.start_soon(self._discovery.keep_following)
        self._tasks.start_soon(self._lanes.watch)
        self._tasks.start_soon(self._lanes.keep_flushing)
        return self._tasks, self._discovery

    async def close(self, *, in_peace: bool) -> None:
        """Ends everything; ``in_peace`` waits for messages under way."""
        try:
            for _ in range(2 if in_peace else 0):  # what was started a moment ago has begun then
                await anyio.lowlevel.checkpoint()
            while in_peace and (self._under_way or self._started):  # each ends by its own deadline
                self._ended = anyio.Event()
                await self._ended.wait()
            with anyio.move_on_after(ONEWAY_S if in_peace else 0):
                for round_ in self._unheard:
                    await round_.done.wait()
        finally:
            assert self._tasks is not None
            assert self._lanes is not None
            tasks, lanes = self._tasks, self._lanes
            self._tasks = self._discovery = self._lanes = None
            try:
                await tasks.close()
            finally:
                lanes.close()

    def start(self, work: Callable[[*_Ts], Coroutine[Any, Any, None]], *args: *_Ts) -> None:
        """Has something sent in a task of its own, which the end waits for. Raises ``Busy``."""
        self.opened()
        assert self._tasks is not None
        if self._started >= self._pending_max:
            raise Busy(f"{self._started} messages are under way", hint="await some sends, or raise pending_max")
        self._started += 1
        self._tasks.start_soon(self._run, partial(work, *args))

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        self._under_way += 1
        try:
            await work()
        finally:
            self._started -= 1
            self._under_way -= 1
            self._ended.set()

    async def send_oneway(self, one: Outgoing) -> None:
        """Hands a message over and waits for no answer. Raises ``PenstockError`` where no broker is known."""
        discovery, lanes = self.opened()
        brokers = discovery.known(one.topic)
        with anyio.move_on_after(self.timeout_s):
            brokers = brokers or await discovery.brokers(one.topic, create=True)
        if not brokers:
            raise _too_late(one, self.timeout_s)
        self._turn += 1
        one.broker = sending.choose(one.key, brokers, self._turn, self._faults.avoided(self._clock.monotonic()))
        self._number(one)
        self._unheard = [round_ for round_ in self._unheard if not round_.done.is_set()]
        round_ = lanes.hand_over(one.broker, one)
        if not self._unheard or self._unheard[-1] is not round_:
            self._unheard.append(round_)

    async def send_quickly(self, one: Outgoing) -> bool:
        """An attempt for a single message that needs no deadline of its own. Returns ``False`` where it cannot be made
        so, and nothing was done."""
        discovery, lanes = self.opened()
        brokers = discovery.known(one.topic)
        may_leave = self._failover and len(brokers) > 1 and not one.key
        if not brokers or self._pending + 1 > self._pending_max or (may_leave and self._faults):
            return False
        self._turn += 1
        try:
            one.broker = sending.choose(one.key, brokers, self._turn)
        except NoRoute:
            return False
        self._number(one)
        one.on_way = True
        self._under_way += 1
        self._pending += 1
        try:
            limit_s = attempt_s(self.timeout_s) if may_leave else self.timeout_s
            handed_over = lanes.hand_over(one.broker, one, limit_s)
            await handed_over.done.wait()
            if one.queue is not None:
                return True
            if one.error is None:
                handed_over.abandon(one)
                one.fail(_too_late(one, limit_s))
            self._note_failure(one)
        finally:
            self._under_way -= 1
            self._pending -= 1
            self._room.set()
            if not self._under_way:
                self._ended.set()
        left_s = handed_over.until - limit_s + self.timeout_s - anyio.current_time()
        if sending.once_more([one]) and left_s > 0:
            await self.send_all([one], left_s, 1)
        return True

    async def send_all(
        self, outgoing: list[Outgoing], limit_s: float, repetition: int = 0, way: Way = AT_ONCE
    ) -> list[Outgoing]:
        """Attempts until each message is stored, has an error that no repetition mends, or no time. ``repetition``: how
        many attempts there were. One that has such an error already is left as it is."""
        check_seconds("timeout_s", limit_s)
        waiting = [one for one in settled(outgoing) if one.error is None or one.error.retryable]
        began = self._clock.monotonic()
        telling = Telling(_log, began)
        self._under_way += 1
        try:
            with anyio.move_on_after(limit_s):
                if repetition:
                    await anyio.sleep(self._back_off.wait_s(repetition, self._rng))
                while waiting and (repetition == 0 or self._discovery is not None):  # else it was closed meanwhile
                    for window in sending.windows(waiting):
                        await self._try(window, way, attempt_s(limit_s))
                    waiting, repetition = way.again(settled(waiting)), repetition + 1
                    if waiting:
                        wait_s = self._back_off.wait_s(repetition, self._rng)
                        goes_on = self._clock.monotonic() + wait_s
                        telling.note(sending.final_error(waiting[0]), goes_on, began + limit_s)
                        await anyio.sleep(wait_s)
        finally:
            self._under_way -= 1
            self._ended.set()
        outgoing = settled(outgoing)
        for one in outgoing:
            if one.queue is None and one.error is None:
                one.fail(_too_late(one, limit_s))
                self._note_failure(one)
        return outgoing

    async def _try(self, waiting: list[Outgoing], way: Way, limit_s: float) -> None:
        """One attempt for all: each gets a place or an error. Those that may go elsewhere wait for ``limit_s``."""
        count = sum([one.count for one in waiting])
        await self._take_room(count)
        try:
            routed, free = await self._route(waiting, way)
            rounds = {one: self._hand_over(one, way) for one in routed}
            if count >= MANY:
                self.opened()[1].flush()
            if free:
                with anyio.move_on_after(limit_s):
                    for one in free:
                        await rounds[one].done.wait()
                for one in free:
                    if not rounds[one].done.is_set():
                        rounds.pop(one).abandon(one)
                        one.fail(_too_late(one, limit_s))
            for round_ in dict.fromkeys(rounds.values()):
                await round_.done.wait()
        finally:
            self._pending -= count
            self._room.set()
        for one in settled(routed):
            if one.error is not None:
                self._note_failure(one)

    async def _route(self, waiting: list[Outgoing], way: Way) -> tuple[list[Outgoing], list[Outgoing]]:
        """Finds brokers: returns the messages that have one, and those of them that may go to another one; the others
        get their error."""
        discovery, _lanes = self.opened()
        avoid = self._faults.avoided(self._clock.monotonic())
        free: list[Outgoing] = []
        self._turn += 1
        for one in waiting:
            one.broker = None
            try:
                brokers = discovery.known(one.topic) or await discovery.brokers(one.topic, create=True)
                if one.chosen is None:
                    may_leave = self._failover and way.may_leave and not one.key
                    one.broker = sending.broker_for(one, brokers, self._turn, avoid, may_leave)
                    if may_leave and len(brokers) > 1:
                        free.append(one)
                else:
                    one.broker = ways.broker_of_chosen(one, brokers)
                self._number(one)
            except PenstockError as error:
                if isinstance(error, NoRoute):
                    discovery.forget(one.topic)  # it may be written to again by now
                one.fail(error)
        return [one for one in waiting if one.broker is not None], free

    def _hand_over(self, one: Outgoing, way: Way) -> Round:
        _discovery, lanes = self.opened()
        assert one.broker is not None
        one.error, one.on_way = None, True
        return lanes.hand_over(one.broker, one, None, way)

    async def ask_broker(
        self, name: str, address: str, request: Request, kind: type[_R], timeout_s: float | None
    ) -> _R:
        """Asks a broker until the deadline. ``address``: its last known address, if there is one. An error
        is ``unknown`` if any attempt may have been carried out."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        check_seconds("timeout_s", limit_s)
        deadline, attempt, unknown = self._clock.monotonic() + limit_s, 0, False
        while True:
            try:
                discovery, _lanes = self.opened()
                address = address or ways.address_of(name, await discovery.all_brokers())
                return await ask(discovery.link(address), request, kind, deadline - self._clock.monotonic())
            except PenstockError as error:
                unknown = unknown or error.unknown
                wait_s = self._back_off.wait_s(attempt := attempt + 1, self._rng)
                if not worth_another_try(error, self._clock.monotonic() + wait_s, deadline):
                    raise sending.known_or_not(error, unknown) from None
            address = ""
            await anyio.sleep(wait_s)

    def running(self) -> tuple[TaskScope, Discovery]:
        """The tasks that live until it is closed, and what knows the brokers."""
        discovery, _lanes = self.opened()
        assert self._tasks is not None
        return self._tasks, discovery

    def opened(self) -> tuple[Discovery, Lanes]:
        if self._discovery is None or self._lanes is None:
            raise InvalidRequest("this producer is not open", hint="use it inside `async with Producer(...) as p:`")
        return self._discovery, self._lanes

    def _note_failure(self, one: Outgoing) -> None:
        """Avoids a broker that cannot be reached, or may no longer be written to, and asks the name servers again for
        the topic's brokers."""
        if one.broker is None or self._discovery is None:
            return
        if isinstance(one.error, Unavailable | TimedOut):
            self._faults.failed(one.broker.address, self._clock.monotonic())
        if isinstance(one.error, Unavailable | TimedOut | NotAllowed):
            self._discovery.forget(one.topic)

    async def _take_room(self, count: int) -> None:
        while self._pending and self._pending + count > self._pending_max:
            self._room = anyio.Event()
            await self._room.wait()
        self._pending += count


def _too_late(one: Outgoing, timeout_s: float) -> TimedOut:
    """The deadline passed without a result: unknown if the message had been handed over, else it was never sent."""
    if one.on_way:
        return TimedOut(f"no receipt within {timeout_s:g} s", hint="whether the message is stored is unknown")
    error = TimedOut(f"not sent within {timeout_s:g} s")
    error.unknown = False
    return error
