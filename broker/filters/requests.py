"""Requests about MQTT filters and retained messages.

A filter's light queue fills from the log position of the record that opened it. The reply waits until that record is
durable: otherwise a power loss could take back the filter of a subscribed device, and acknowledged messages would miss
the queue. A close need not wait: a queue that is back after a crash ends with its owner's lease.

An owner without a lease is a session. A gateway that opens its filters in its name later learns where they began, and
reads on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.filters import fold as filters
from broker.kernel.deadlines import Deadlines
from broker.kernel.fold import fact_record, in_parts
from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, Now, Outcome
from broker.messages.trace import Trace
from broker.settings import BrokerSettings
from broker.shares import fold as shares
from broker.shares.fold import Shares
from broker.state import BrokerState
from broker.store.destinations import Incoming
from broker.store.message_store import MessageStore
from penstock.errors import Busy, InvalidRequest, InvalidTopic, TooLarge
from penstock.protocol.message import ENTRY, OFFSETS, OFFSETS_AT
from penstock.protocol.requests.filters import (
    CloseFilters,
    FetchRetained,
    FilterLevel,
    FilterLevels,
    FiltersKept,
    KeepFilters,
    ListFilters,
    OpenedFilter,
    OpenedFilters,
    OpenFilters,
    RefusedFilter,
    RetainedPage,
)
from penstock.protocol.requests.request import Done
from topicmap.names import InvalidName, check_filter, is_share, legal_filter, plain_filter, quoted, weight
from topicmap.queues import filter_queue

OWNER_BYTES_MAX: Final = 300
FILTER_BYTES_PER_RECORD: Final = 1 << 16
LOOKED_AT_MAX: Final = 256
LEVELS_MAX: Final = 1_000
"""Maximum number of levels of filters in one page."""
PAGE_BYTES_MAX: Final = 1 << 20
_FACT_HEAD_BYTES: Final = OWNER_BYTES_MAX + 64
"""What a fact has beside the filters is less."""
_POSITION_AT: Final = 24 + OFFSETS_AT


class FilterRequests:
    """Filters and retained messages of one broker; keeps the owners' leases, which are not durable."""

    def __init__(
        self, state: BrokerState, store: MessageStore, settings: BrokerSettings, now: float, trace: Trace
    ) -> None:
        self._trace = trace
        self._filters = state.filters
        self._identity = state.identity
        self._shares = state.shares
        self._retained = state.retained
        self._store = store
        self._settings = settings
        self._leases: Deadlines[str] = Deadlines()
        for owner in self._filters.owners:
            self._renew(owner, now, settings.owner_lease_s)

    @handles(OpenFilters)
    def open(self, request: OpenFilters, now: float, now_ms: int) -> Outcome:
        """Opens light queues for an owner, or refuses single ones."""
        _check_owner(request.owner)
        refused = self._refused(request.filters)
        asked = [filter for filter in request.filters if filter not in refused]
        wanted = [filter for filter in dict.fromkeys(asked) if not self._filters.holds(request.owner, filter)]
        self._store_facts(filters.OPEN, request.owner, wanted, now_ms, self._beginnings(asked))
        self._renew(request.owner, now, self._settings.owner_lease_s)
        position, new = self._store.written, frozenset(wanted)
        opened = []
        for filter in asked:
            queue = filter_queue(plain_filter(filter))
            begun = 0 if filter in new else self._filters.begun(request.owner, filter)
            if begun:
                opened.append(OpenedFilter(filter, queue, self._store.offset_at(queue, begun), begun))
            else:
                opened.append(OpenedFilter(filter, queue, self._store.next_offset(queue), position))
        reply = OpenedFilters(tuple(opened), tuple(refused.values()), self._identity.log_id)
        return AfterQuorum(reply, position)

    def _refused(self, asked: tuple[str, ...]) -> dict[str, RefusedFilter]:
        """The filters that are illegal, or for which there is no room."""
        refused: dict[str, RefusedFilter] = {}
        count, shares = self._filters.weight, len(self._shares)
        for filter in dict.fromkeys(asked):
            if filter in self._filters:
                continue
            try:
                _check_shared_or_plain(filter)
                self._check_room(filter, count, shares)
            except (Busy, InvalidTopic, TooLarge) as error:
                refused[filter] = RefusedFilter(filter, error.code, error.message)
            else:
                count += weight(plain_filter(filter))
                shares += is_share(filter)
        return refused

    def _check_room(self, filter: str, count: int, shares: int) -> None:
        """Raises ``Busy`` where one more filter, beside these plain and shared ones, may not be opened, or none of
        this form. Raises ``TooLarge`` for one that no segment holds."""
        if _packed_bytes(filter) > self._store.fact_bytes_max - _FACT_HEAD_BYTES:
            raise TooLarge(f"a filter of {len(filter.encode())} bytes does not fit a segment of this broker")
        if count + weight(plain_filter(filter)) > self._settings.filters_max:
            raise Busy(f"{count} filters are open: the limit filters_max is reached")
        if is_share(filter) and shares >= self._settings.shares_max:
            raise Busy(f"there are {shares} shared subscriptions: the limit is reached")
        if not self._filters.has_room(plain_filter(filter)):
            raise Busy(f"{quoted(filter)}: filters with too many different places of their wildcards are open")

    def _beginnings(self, asked: list[str]) -> list[Incoming]:
        """The records with which shared subscriptions begin: at the present end of their queue, or with it. A power
        loss may leave one held and not begun, which no client has heard of: it begins when it is opened again."""
        records = []
        for share in dict.fromkeys(asked):
            if is_share(share) and self._shares.get(share) is None:
                plain = plain_filter(share)
                offset = self._store.next_offset(filter_queue(plain)) if plain in self._filters else 0
                records.append(fact_record(shares.TOPIC, Shares.beginning(share, offset)))
        return records

    def _store_facts(
        self, action: str, owner: str, changed: list[str], now_ms: int, more: Sequence[Incoming] = ()
    ) -> None:
        """Records the filters that an owner opens or closes, and their changes; many filters take several records, and
        where segments are small several appends: the caller is answered after the last."""
        records = [*self._facts(action, owner, changed), *more]
        if records:
            self._store.append_facts(records, now_ms)

    def _facts(self, action: str, owner: str, changed: list[str]) -> list[Incoming]:
        room = min(FILTER_BYTES_PER_RECORD, self._store.fact_bytes_max - _FACT_HEAD_BYTES)
        parts = in_parts(changed, _packed_bytes, room)
        return [fact_record(filters.TOPIC, self._filters.fact(action, owner, part)) for part in parts]

    @handles(CloseFilters)
    def close(self, request: CloseFilters, now: float, now_ms: int) -> Outcome:
        """An owner needs these filters no longer."""
        held = [filter for filter in dict.fromkeys(request.filters) if self._filters.holds(request.owner, filter)]
        self._store_facts(filters.CLOSE, request.owner, held, now_ms)
        return Now(Done())

    @handles(KeepFilters)
    def keep(self, request: KeepFilters, now: float, now_ms: int) -> Outcome:
        """An owner lives."""
        _check_owner(request.owner)
        if not 0 < request.lease_s <= 86_400:
            raise InvalidRequest("a lease has more than 0 and at most 86,400 seconds")
        if self._filters.held_by(request.owner):
            self._renew(request.owner, now, request.lease_s)
        return Now(FiltersKept(self._trace.topics))

    def _renew(self, owner: str, now: float, lease_s: float) -> None:
        if not owner.startswith(filters.LASTING):
            self._leases.set(owner, now + lease_s)

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """Closes the filters of owners that have been silent for too long."""
        for owner in self._leases.due(now):
            for record in self._facts(filters.CLOSE, owner, self._filters.held_by(owner)):
                self._store.append([record], now_ms)  # one by one: all together may not fit a segment

    @handles(ListFilters)
    def list_filters(self, request: ListFilters, now: float, now_ms: int) -> Outcome:
        """A page of the levels of open filters below a parent."""
        if request.skip < 0 or request.count_max < 1:
            raise InvalidRequest("skip is at least 0 and count_max at least 1")
        below = self._filters.levels_below(request.parent, is_first=request.is_first)
        names = sorted(below)
        page = names[request.skip : request.skip + min(request.count_max, LEVELS_MAX)]
        return Now(FilterLevels(tuple([FilterLevel(name, *below[name]) for name in page]), len(names)))

    @handles(FetchRetained)
    def fetch_retained(self, request: FetchRetained, now: float, now_ms: int) -> Outcome:
        """A page of retained messages; it waits until what it shows is durable."""
        _check_filter(request.filter)
        if request.count_max < 1:
            raise InvalidRequest("count_max is at least 1")
        rows: list[bytes] = []
        frames: list[bytes] = []
        size, last, after = 0, "", ""
        for name, frame in self._retained.matching(request.filter, request.after, LOOKED_AT_MAX):
            if frame is None or (frames and size + len(frame) > PAGE_BYTES_MAX) or len(rows) >= request.count_max:
                after = last if frame is not None else name
                break
            rows.append(ENTRY.pack(0, OFFSETS.unpack_from(frame, _POSITION_AT)[1], len(frame), 0))
            frames.append(frame)
            size += len(frame)
            last = name
        return AfterQuorum(RetainedPage(len(rows), after, b"".join(rows + frames)), self._retained.changed_at)


def _packed_bytes(filter: str) -> int:
    """Upper bound of the bytes that a filter takes in a fact."""
    return len(filter.encode()) + 5


def _check_owner(owner: str) -> None:
    if not 0 < len(owner.encode("utf-8", "replace")) <= OWNER_BYTES_MAX:
        raise InvalidRequest(f"an owner's name has 1 to {OWNER_BYTES_MAX} bytes")


def _check_shared_or_plain(filter: str) -> None:
    try:
        legal_filter(filter)
    except InvalidName as error:
        raise InvalidTopic(f"{quoted(filter)}: {error}") from None


def _check_filter(filter: str) -> None:
    try:
        check_filter(filter)
    except InvalidName as error:
        raise InvalidTopic(f"{quoted(filter)}: {error}") from None
