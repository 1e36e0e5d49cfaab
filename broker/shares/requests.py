"""Requests about shared subscriptions: messages for takers, and their outcomes.

The log has the settled messages of a share (``broker/shares/fold.py``), but not the leases of the others
(``leases.py``). A message has one taker at a time. Another one gets it when the taker gives it back or has been silent
for ``share_lease_s``; the first may still settle it, because then a client has it. After a restart the takers have
``RESUME_S`` to report their messages, before others get any.
"""

from __future__ import annotations

import contextlib
import heapq
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from broker.filters import fold as filters
from broker.kernel.deadlines import Deadlines
from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, AfterRound, Now, Outcome, Parked
from broker.kernel.theme import Wakers
from broker.settings import BrokerSettings
from broker.shares.fold import Settled, Shares
from broker.shares.leases import Given, Row, ShareLeases
from broker.state import BrokerState
from broker.store.message_store import MessageStore
from penstock.errors import InvalidRequest, PenstockError, QueueNotFound, StorageFull
from penstock.protocol.message import (
    ENTRY,
    FRAME_HEAD_BYTES,
    KEYS,
    KEYS_BASE64,
    mqtt_name,
    property_of,
    record_properties,
    record_topic,
    tag_hash,
)
from penstock.protocol.requests.messages import Pulled
from penstock.protocol.requests.request import Done, Result
from penstock.protocol.requests.shares import (
    TAKEN_BYTES_MAX,
    ListShares,
    SettleShared,
    SharesPage,
    ShareState,
    TakeShared,
)
from topicmap.names import is_share, parse_share, weight
from topicmap.queues import is_pop, share_queue

COUNT_MAX: Final = 4096
WAIT_S_MAX: Final = 60.0
RESUME_S: Final = 3.0
TAKER_BYTES_MAX: Final = 300
SHARES_PER_PAGE_MAX: Final = 1000
_KEYS: Final = KEYS.encode()
_KEYS_BASE64: Final = KEYS_BASE64.encode()


class ShareRequests:
    """The shared subscriptions of one broker. ``redelivered``: messages that went out again; ``lost``: those that
    retention or damage took before any taker had them; ``changed``: shares that have stirred and were not taken yet."""

    def __init__(
        self,
        state: BrokerState,
        store: MessageStore,
        settings: BrokerSettings,
        now: float,
        wakers: Wakers,
        popped: Callable[[str], tuple[int, int]] = lambda share: (0, 0),
    ) -> None:
        """``popped``: how many messages of what a group pops are with takers, and how many are owed."""
        self._popped = popped
        self._shares: Shares = state.shares
        self._filters = state.filters
        self._store = store
        self._settings = settings
        self._leases: dict[str, ShareLeases] = {}
        self._takers: Deadlines[str] = Deadlines()  # when the lease of each ends
        self._wakers = wakers
        self._now_ms = 0
        self._shares.take_ended()  # in the replay: those of these names that there are have begun since
        self._resuming = dict.fromkeys([share for share in self._shares.names if not is_pop(share)])
        self._resume_until = now + RESUME_S
        self._redelivered = 0
        self.lost = 0

    @property
    def unsettled(self) -> int:
        """The number of messages that are on their way, or wait to be given out again."""
        return sum([leases.unsettled for leases in self._leases.values()])

    @property
    def redelivered(self) -> int:
        """The number of messages that were given out more than once."""
        return self._redelivered + sum([leases.redelivered for leases in self._leases.values()])

    # ------------------------------------------------------------ requests

    @handles(TakeShared)
    def take(self, request: TakeShared, now: float, now_ms: int) -> Outcome:
        """Messages for a taker; parked while there is none."""
        if request.count_max < (not request.resumes) or request.wait_s < 0:
            raise InvalidRequest("count_max is at least 1 (0 for nothing but to resume), wait_s at least 0")
        self._renew(request.taker, now)
        self._now_ms = now_ms
        if request.resumes:
            self._resume(request)
        taken = self._take(request)
        if taken.count or not request.wait_s:
            return AfterRound(taken) if request.resumes else Now(taken)
        queue = _queue_of(request.share)

        def again(last: bool) -> Result | None:
            try:
                found = self._take(request)
            except PenstockError as error:
                return error.as_result()  # the share has ended, or the disk is full
            return found if found.count or last else None

        wakers = (queue, share_waker(request.share))
        return Parked(wakers, now + min(request.wait_s, WAIT_S_MAX), again)

    @handles(SettleShared)
    def settle(self, request: SettleShared, now: float, now_ms: int) -> Outcome:
        """Messages are settled, or given back. A share that has ended needs neither."""
        self._renew(request.taker, now)
        self._now_ms = now_ms
        settled = self._shares.get(request.share)
        if settled is None:
            return Now(Done())
        leases = self._of(request.share)
        if request.returned and leases.give_back(request.taker, request.returned):
            self._wakers[share_waker(request.share)] = None
        if not request.settled:
            return Now(Done())
        end = self._store.bounds(_queue_of(request.share)).end
        fresh = sorted({offset for offset in request.settled if 0 <= offset < end and offset not in settled})
        self._settle(request.share, _ranges(fresh))
        return AfterQuorum(Done(), self._store.written)

    @handles(ListShares)
    def list_all(self, request: ListShares, now: float, now_ms: int) -> Outcome:
        """The states of shares, a page at a time."""
        if request.count_max < 1:
            raise InvalidRequest("count_max is at least 1")
        count = min(request.count_max, SHARES_PER_PAGE_MAX)
        names = heapq.nsmallest(count, [name for name in self._shares.names if name > request.after])
        taken = list(accumulate(map(weight, names)))
        shown = names[: max(1, bisect_right(taken, SHARES_PER_PAGE_MAX))]
        rows = tuple([self._state_of(name, self._shares.known(name)) for name in shown])
        return Now(SharesPage(rows, shown[-1] if len(shown) < len(names) or len(names) == count else ""))

    def _state_of(self, share: str, settled: Settled) -> ShareState:
        bounds = self._store.bounds(share_queue(share))
        leases = self._leases.get(share)
        owed = leases.owed if leases is not None else 0
        on_way = leases.unsettled - owed if leases is not None else 0
        if is_pop(share):
            on_way, owed = self._popped(share)
        owners = self._filters.owners_of(share)
        sessions = sum([owner.startswith(filters.LASTING) for owner in owners])
        lag = settled.count_open(bounds.min, bounds.end)
        return ShareState(share, lag, on_way, owed, len(owners) - sessions, sessions)

    def _renew(self, taker: str, now: float) -> None:
        if not 0 < len(taker.encode("utf-8", "replace")) <= TAKER_BYTES_MAX:
            raise InvalidRequest(f"a taker's name has 1 to {TAKER_BYTES_MAX} bytes")
        self._takers.set(taker, now + self._settings.share_lease_s)

    # ------------------------------------------------------------ messages

    def _of(self, share: str) -> ShareLeases:
        """The leases of a share that there is."""
        for ended in self._shares.take_ended():
            gone = self._leases.pop(ended, None)
            self._resuming.pop(ended, None)
            self._redelivered += gone.redelivered if gone is not None else 0
        settled = self._shares.get(share)
        if settled is None:
            raise QueueNotFound(f"there is no shared subscription {share}")
        leases = self._leases.get(share)
        if leases is None:
            passed = self._passed(share, settled)
            leases = self._leases[share] = ShareLeases(_is_ordered(share), passed)
            with contextlib.suppress(StorageFull):  # they are looked for again after a restart
                self._settle(share, [(settled.floor, passed)] if passed > settled.floor else ())
        return leases

    def _passed(self, share: str, settled: Settled) -> int:
        """The offset below which all is settled, also where damage has moved settled messages to later ones."""
        queue, floor = _queue_of(share), settled.floor
        if floor < self._store.next_offset(queue):
            floor = max(floor, self._store.offset_at(queue, settled.position))
        return floor

    def _take(self, request: TakeShared) -> Pulled:
        leases, settled = self._of(request.share), self._shares.known(request.share)
        bounds = self._store.bounds(_queue_of(request.share))
        if request.share in self._resuming or request.taker not in self._takers:
            return Pulled(0, leases.next, bounds.min, bounds.end, b"")
        given = leases.take(
            request.taker,
            settled,
            lambda offset, count, size: self._read(request.share, offset, count, size),
            min(request.count_max, COUNT_MAX),
            min(TAKEN_BYTES_MAX, self._settings.pull_bytes_max),
            self._settings.share_unsettled_max,
        )
        self._bury(request.share, given)
        body = b"".join([row.entry for row in given.rows] + [row.frame for row in given.rows])
        return Pulled(len(given.rows), leases.next, bounds.min, bounds.end, body)

    def _read(self, share: str, offset: int, count_max: int, bytes_max: int) -> tuple[list[Row], int]:
        queue = _queue_of(share)
        bounds = self._store.bounds(queue)
        if offset < bounds.min:
            return [], bounds.min
        if offset >= bounds.end:
            return [], offset
        pulled = self._store.read(queue, offset, count_max, bytes_max)
        return _rows(pulled, is_ordered=_is_ordered(share)), min(pulled.next, offset + count_max)

    def _resume(self, request: TakeShared) -> None:
        leases, settled = self._of(request.share), self._shares.known(request.share)

        def read_keys(first: int, end: int) -> dict[int, int]:
            return self._keys(request.share, first, end)

        leases.resume(request.taker, request.held, settled, read_keys, request.since, request.before)
        self._wakers[share_waker(request.share)] = None

    def _keys(self, share: str, first: int, end: int) -> dict[int, int]:
        """The keys of the messages that there are; where nothing is ordered none is read for that."""
        bounds = self._store.bounds(_queue_of(share))
        first, end = max(first, bounds.min), min(end, bounds.end)
        if not _is_ordered(share):
            return dict.fromkeys(range(first, end), 0)
        keys: dict[int, int] = {}
        while first < end:
            rows, following = self._read(share, first, end - first, TAKEN_BYTES_MAX)
            if following <= first:
                break
            keys.update({row.offset: row.key for row in rows if row.offset < end})
            first = following
        return keys

    def _bury(self, share: str, given: Given) -> None:
        """Ends the waits for messages that are gone."""
        if given.gone:
            beginning = self._store.bounds(_queue_of(share)).min
            self.lost += sum([end - max(first, 0) for first, end in given.gone if first >= beginning])
            with contextlib.suppress(StorageFull):  # they are looked for again after a restart
                self._settle(share, given.gone)

    def _settle(self, share: str, ranges: Sequence[tuple[int, int]]) -> None:
        if not ranges:
            return
        self._store.append_facts(self._shares.settling_all(share, ranges, self._store.position_of), self._now_ms)
        leases = self._of(share)
        was_full = leases.unsettled >= self._settings.share_unsettled_max
        for first, end in ranges:
            leases.settle(first, end)
        if leases.owed or was_full:
            self._wakers[share_waker(share)] = None

    def figures(self) -> dict[str, float]:
        """Gauges and counters of shared subscriptions."""
        return {
            "penstock_shares": len(self._shares),
            "penstock_shared_unsettled": self.unsettled,
            "penstock_shared_redelivered_total": self.redelivered,
            "penstock_shared_lost_total": self.lost,
        }

    # ------------------------------------------------------------ time

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """Gives the messages of silent takers to others."""
        if self._resuming and now >= self._resume_until:
            self._wakers.update(dict.fromkeys(map(share_waker, self._resuming)))
            self._resuming = {}
        for taker in self._takers.due(now):
            for share, leases in self._leases.items():
                if leases.give_back(taker, leases.leased_to(taker)):
                    self._wakers[share_waker(share)] = None


def _queue_of(share: str) -> str:
    if not is_share(share):
        raise InvalidRequest(f"{share!r} is no shared subscription")
    return share_queue(share)


def _is_ordered(share: str) -> bool:
    parsed = parse_share(share)
    return parsed is not None and parsed.is_ordered


def _ranges(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Offsets in order, neighbours together."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found


def _rows(pulled: Pulled, *, is_ordered: bool) -> list[Row]:
    body = memoryview(pulled.body)
    at = pulled.count * ENTRY.size
    rows = []
    for offset, position, size, _tag in ENTRY.iter_unpack(body[:at]):
        frame = body[at : at + size]
        key = _key_of(frame) if is_ordered else 0
        rows.append(Row(offset, key, ENTRY.pack(offset, position, size, key), frame))
        at += size
    return rows


def _key_of(frame: memoryview) -> int:
    """The ordering key of a message: its key, or else its MQTT name; as a hash, because only equality matters."""
    record = frame[FRAME_HEAD_BYTES:]
    properties = bytes(record_properties(record))
    key = (property_of(properties, _KEYS) or property_of(properties, _KEYS_BASE64)).decode("utf-8", "replace")
    return tag_hash(key or mqtt_name(bytes(record_topic(record)), properties))


def share_waker(share: str) -> str:
    """The waker of a share, for messages that were given back; no queue has such a name."""
    return f"share {share}"
