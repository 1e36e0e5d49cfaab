"""Reads the ranges of one Spark partition: Arrow batches out of pulls, the next pull always on its way.

It runs in Spark's Python workers and keeps one connection per broker and process, for workers live on between tasks. It
decides nothing about which offsets to read; what it cannot read it reports and never leaves out silently, unless data
loss was declared acceptable.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import pyarrow as pa

from penstock.blocking.link import BlockingLink
from penstock.blocking.routes import Routes
from penstock.client.following import next_copy
from penstock.errors import Damaged, LogReplaced, OffsetOutOfRange, PenstockError, TimedOut, Unavailable
from penstock.protocol.requests.messages import SPARK, SPARK_GROUP, BoundsReply, Pull, Pulled, QueryBounds
from penstock.spark.columns import Origin, find_borders, to_record_batch
from penstock.spark.offsets import GUIDE
from penstock.spark.options import SourceOptions
from penstock.spark.patience import Patience
from penstock.spark.payloads import columns_needed, rows_of
from penstock.spark.planning import Range
from penstock.world import RealClock
from topicmap.queues import topic_queue

_log = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def links_of(process: int) -> dict[str, BlockingLink]:
    """The connections of this process; a forked process gets its own."""
    return {}


def read_ranges(ranges: Sequence[Range], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Rows of the ranges, in the order of each queue's offsets.

    Raises:
        OffsetOutOfRange: retention removed messages of a range.
        LogReplaced: the broker has another log than the one of a range.
        Damaged: the broker passed over messages whose stored bytes are damaged.
        PenstockError: the broker stayed away, or refused.
    """
    for one in ranges:
        links = links_of(os.getpid())
        reader = _RangeReader(links, one, options)
        try:
            yield from reader.batches()
        except BaseException:
            reader.link.close()  # a pull may be open on it: its reply must not meet the next reader
            raise


BEHIND_S: Final = 5.0
"""Longest wait for a node, a copy or a new leader, to have messages that are known to be stored."""


COPY_BEHIND_S: Final = 0.5
"""The same at a copy beside its leader, which is asked then."""


class _Asked(NamedTuple):
    offset: int
    request_id: int


class _RangeReader:
    """Reads one range. ``link``: the way to its broker."""

    def __init__(self, links: dict[str, BlockingLink], what: Range, options: SourceOptions) -> None:
        self._links = links
        self.link = self._link_to(what.address, options)
        self._what = what
        self._options = options
        self._columns = columns_needed(options)
        self._queue = topic_queue(what.topic, what.queue)
        self._clock = RealClock()
        self._selector = options.where.selector(what.topic, options.selector)
        self._chooses = bool(options.tags or self._selector or options.names)
        self._is_at_copy = bool(what.leader)
        self._unsent: PenstockError | None = None  # why the last pull could not be sent

    def batches(self) -> Iterator[pa.RecordBatch]:
        what, options = self._what, self._options
        origin = Origin(what.topic, what.broker, what.queue)
        at, asked = what.start, None
        while at < what.end:
            try:
                pulled = self._pulled(at, asked)
            except OffsetOutOfRange as error:
                asked = None
                at = at if self._leave_copy() else self._pass_lost(at, error)
                continue
            except LogReplaced as error:
                if options.fail_on_data_loss:
                    raise LogReplaced(error.message, hint=GUIDE) from None
                _log.warning("%s: offsets %d to %d are left out: %s", self._queue, at, what.end, error.message)
                return
            if self._lacks(at, pulled) and self._leave_copy():
                asked = None
                continue
            self._check_complete(at, pulled)
            at = pulled.next
            asked = self._ask(at) if at < what.end else None
            if pulled.count:
                borders = find_borders(pulled.count, pulled.body, what.end)
                yield rows_of(to_record_batch(borders, origin, self._columns), options)

    def _ask(self, at: int) -> _Asked | None:
        """Sends the next pull; where that fails the pull is repeated when its turn comes."""
        options = self._options
        count_max = options.batch_rows if self._chooses else min(options.batch_rows, self._what.end - at)
        request = Pull(
            self._queue,
            at,
            options.pull_bytes,
            count_max,
            min(COPY_BEHIND_S if self._is_at_copy else BEHIND_S, options.timeout_s / 2),
            tags=options.tags,
            log_id=self._what.log_id,
            filter=self._selector,
            reader=f"{SPARK_GROUP}{options.group}" if options.group else SPARK,
            names=options.names,
        )
        try:
            return _Asked(at, self.link.submit([request])[0])
        except PenstockError as error:
            if not error.retryable:
                raise
            self._unsent = error
            return None

    def _pulled(self, at: int, asked: _Asked | None) -> Pulled:
        """The pull from ``at``, asked again while the broker is away."""
        patience = Patience(self._options)
        while True:
            asked = asked or self._ask(at)
            try:
                if asked is not None:
                    return self._receive(asked)
                assert self._unsent is not None
                failure = self._unsent
            except PenstockError as error:
                failure = error
            asked = None
            patience.wait_or_raise(self._told(failure))
            self._look_up()

    def _told(self, error: PenstockError) -> PenstockError:
        """A connection error with the machine, broker and address that a person needs to mend it."""
        if not isinstance(error, Unavailable | TimedOut):
            return error
        here, there = platform.node() or "this machine", self.link.address
        said = f"Spark's worker on {here} cannot read from broker {self._what.broker} at {there}"
        hint = "brokers give `advertise` as their address; every machine with executors must reach it"
        why = error.message.removeprefix(f"no server at {there}: ")
        return type(error)(f"{said}: {why}", hint=hint)

    def _look_up(self) -> None:
        """The broker may be back at another address; where its log has copies, the next one is read."""
        try:
            with Routes(self._options.servers, self._options.timeout_s, self._options.login.credentials()) as routes:
                brokers = routes.holders(self._what.topic).brokers
        except PenstockError:
            return  # workers may not reach the name servers
        own = [route for route in brokers if route.broker == self._what.broker]
        copies = [one for route in own for one in (route.address, *route.readers)]
        address = next_copy(self.link.address, list(dict.fromkeys(copies)))
        if address != self.link.address:
            self.link.close()
            self.link = self._link_to(address, self._options)

    def _link_to(self, address: str, options: SourceOptions) -> BlockingLink:
        if address not in self._links:
            credentials = options.login.credentials()
            self._links[address] = BlockingLink(address, options.timeout_s, credentials=credentials)
        return self._links[address]

    def _receive(self, asked: _Asked) -> Pulled:
        deadline = self._clock.monotonic() + self._options.timeout_s
        while (left := deadline - self._clock.monotonic()) > 0:
            result = self.link.receive(left).get(asked.request_id)
            if isinstance(result, PenstockError):
                raise result
            if result is not None:
                assert isinstance(result, Pulled)
                return result
        self.link.close()
        raise TimedOut(f"{self.link.address} did not answer a pull in {self._options.timeout_s:g} s")

    def _leave_copy(self) -> bool:
        """What a copy lacks, its leader may have: reads the rest there. Whether this was at a copy."""
        if not self._is_at_copy:
            return False
        self._is_at_copy = False
        self.link = self._link_to(self._what.leader, self._options)
        return True

    def _lacks(self, at: int, pulled: Pulled) -> bool:
        """Whether messages from ``at`` on are not there yet, or damaged."""
        return pulled.next <= at or (not self._chooses and pulled.next - at > pulled.count)

    def _check_complete(self, at: int, pulled: Pulled) -> None:
        """Nothing is left out silently: offsets passed over are damage, an end before the range's end is loss."""
        if pulled.next <= at:
            raise OffsetOutOfRange(f"{self._queue} ends at {pulled.end} now; offset {at} was there before")
        missing = 0 if self._chooses else pulled.next - at - pulled.count
        if missing:
            said = f"{missing} messages of {self._queue} from offset {at} to {pulled.next} are damaged at the broker"
            if self._options.fail_on_data_loss:
                raise Damaged(said, hint=GUIDE)
            _log.warning("%s and left out", said)

    def _pass_lost(self, at: int, error: OffsetOutOfRange) -> int:
        """Where to go on after retention passed ``at``; raises ``error`` unless loss is acceptable."""
        if not self._options.fail_on_data_loss:
            bounds = self.link.ask(QueryBounds((self._queue,)), BoundsReply).bounds[0]
            if bounds.min > at:
                _log.warning("%s: offsets %d to %d are gone and left out", self._queue, at, bounds.min)
                return bounds.min
        hint = f"longer retention at the broker avoids it; {GUIDE}"
        raise OffsetOutOfRange(error.message, hint=hint) from None
