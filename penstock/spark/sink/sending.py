"""Sends the rows of one Spark task to the brokers and waits until all are stored.

One request at a time is on its way to a broker, so that its numbers reach the log without a gap; the next is made
meanwhile. An unanswered request is sent again, byte for byte, to the same broker, which recognises it. Rows without a
key go round all brokers of their topic, also those away just now, for a row must go to the same broker when Spark
repeats it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa

from penstock.blocking.routes import Routes
from penstock.client.preparation import Common
from penstock.client.sending import choose
from penstock.errors import InternalError, NoRoute, NumberTaken, PenstockError, TimedOut, Unavailable, from_wire
from penstock.protocol.requests.messages import Append, Appended, AppendRuns
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.routes import BrokerRoute
from penstock.spark.logins import Login
from penstock.spark.patience import Patience
from penstock.spark.sink.blocks import Packed, Packing, Place, blocks, in_order
from penstock.spark.sink.numbers import Numbers, Task
from penstock.spark.sink.options import SinkOptions
from penstock.world import Clock, RealClock


@cache  # few: a process works for one query after another
def routes_of(process: int, servers: tuple[str, ...], timeout_s: float, login: Login) -> Routes:
    """The connections of this process to a cluster, as one login; a forked process makes its own."""
    return Routes(servers, timeout_s, login.credentials())


def write_rows(batches: Iterable[pa.RecordBatch], options: SinkOptions, task: Task) -> int:
    """Stores all rows, each once however often the task runs; returns their number.

    Raises:
        BrokerAway, Unavailable, TimedOut: a broker stayed away for longer than the options' patience.
        PenstockError: a broker refused a row.
    """
    routes = routes_of(os.getpid(), options.servers, options.timeout_s, options.login)
    try:
        return Sending(routes, options, task).write(batches)
    except BaseException:
        routes.close()  # a request may be on its way: its answer must not meet the next task
        raise


def checksum() -> Callable[[bytes], int] | None:
    """The checksum of runs; ``None`` on executors without ``fastcrc``, which reads do not need. These send whole
    records, which takes longer."""
    try:
        from fastcrc.crc32 import iscsi
    except ImportError:
        return None
    found: Callable[[bytes], int] = iscsi
    return found


_OTHER_ROWS: Final = (
    "this batch, or a part of it, was stored with other rows or in another order: run it with rowOrder=sorted, which "
    "stores it once more, or with a new checkpoint or writeId"
)


class _OnWay(NamedTuple):
    packed: Packed
    request: Request
    address: str
    request_id: int | None


class Sending:
    """The rows of one task on their way."""

    def __init__(self, routes: Routes, options: SinkOptions, task: Task, clock: Clock | None = None) -> None:
        self._routes = routes
        self._options = options
        self._clock = clock or RealClock()
        self._checksum = checksum()
        is_runs = self._checksum is not None
        self._packing = Packing(options.topic, Numbers(task, is_sorted=options.is_sorted), self._place, is_runs=is_runs)
        self._brokers: dict[str, tuple[BrokerRoute, ...]] = {}  # of each topic
        self._addresses: dict[str, str] = {}
        self._on_way: dict[str, _OnWay] = {}

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """As ``write_rows``."""
        found = blocks(in_order(batches) if self._options.is_sorted else batches)
        first, second = next(found, None), next(found, None)
        count = 0
        for block in chain((one for one in (first, second) if one is not None), found):
            for packed in self._packing.requests(block, self._clock.wall_ms(), by_content=second is None):
                self._finish(packed.broker)
                self._on_way[packed.broker] = self._sent(packed, self._request_of(packed))
                count += packed.messages
        for broker in list(self._on_way):
            self._finish(broker)
        return count

    # -- where rows go

    def _place(self, common: Common, block: int) -> Place:
        brokers = self._brokers.get(common.topic)
        if brokers is None:
            brokers = self._brokers[common.topic] = Patience(self._options).ask(lambda: self._holders(common.topic))
            self._addresses.update((one.broker, one.address) for one in brokers)
        layout = ",".join(sorted(one.broker for one in brokers))
        return Place(choose(common.key, brokers, block).broker, layout)

    def _holders(self, topic: str) -> tuple[BrokerRoute, ...]:
        """The brokers that take messages for a topic. Raises ``BrokerAway`` where one of them is away."""
        try:
            found = self._routes.holders(topic).whole(f"topic {topic!r}")
        except NoRoute:
            found = self._routes.find_or_create(topic)
        choose("", found, 0)  # raises where the topic is closed for writing
        return found

    # -- requests

    def _request_of(self, packed: Packed) -> Request:
        if packed.is_runs:
            assert self._checksum is not None
            return AppendRuns(packed.messages, self._checksum(packed.body), packed.body)
        return Append(packed.messages, False, packed.body)

    def _sent(self, packed: Packed, request: Request) -> _OnWay:
        """Sends a request; where that fails it is repeated when its answer is wanted."""
        address = self._addresses[packed.broker]
        try:
            return _OnWay(packed, request, address, self._routes.link(address).submit([request])[0])
        except PenstockError as error:
            if not error.retryable:
                raise
            return _OnWay(packed, request, address, None)

    def _finish(self, broker: str) -> None:
        """Waits until the request that is on its way to a broker is carried out."""
        patience = Patience(self._options)
        while broker in self._on_way:
            one = self._on_way[broker]
            failure: PenstockError | None = Unavailable(f"broker {broker} at {one.address} is away")
            try:
                if one.request_id is not None:
                    failure = _failure(one.packed, self._result(one))
            except PenstockError as error:
                failure = error
            if failure is None:
                del self._on_way[broker]
                return
            patience.wait_or_raise(failure)
            self._look_up(one.packed)
            self._on_way[broker] = self._sent(one.packed, one.request)

    def _result(self, one: _OnWay) -> Result:
        link = self._routes.link(one.address)
        deadline = self._clock.monotonic() + self._options.timeout_s
        while (left := deadline - self._clock.monotonic()) > 0:
            result = link.receive(left).get(one.request_id or 0)
            if result is not None:
                return result
            if not link.is_open:
                raise Unavailable(f"the connection to {one.address} was lost")
        link.close()
        raise TimedOut(f"{one.address} did not answer in {self._options.timeout_s:g} s")

    def _look_up(self, packed: Packed) -> None:
        """The broker may be back at another address."""
        try:
            for route in self._routes.holders(packed.topic).brokers:
                self._addresses[route.broker] = route.address
        except PenstockError:
            return  # it is asked for again after the next failure


def _failure(packed: Packed, result: Result) -> PenstockError | None:
    """Why rows of a request are not stored; nothing where all are."""
    if isinstance(result, PenstockError):
        return result
    if not isinstance(result, Appended):
        return InternalError("the broker's answer does not fit the request")
    if not result.refused:
        return None
    one = result.refused[0]
    error = from_wire(one.code, one.message)
    more = len(result.refused) - 1
    others = f", and {more} other{'s' * (more > 1)}" if more else ""
    hint = _OTHER_ROWS if isinstance(error, NumberTaken) else ""
    told = f"broker {packed.broker} refused a row for topic {packed.topic}{others}: {error.message}"
    return type(error)(told, hint=hint)
