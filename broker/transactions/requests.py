"""Requests about transactional messages, and the tick that has their producers asked.

A half is checked when it begins as an append is, and again when it is committed. What is refused then is parked: an
operator decides. The broker never drops a half by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice
from typing import Final

from broker.kernel.fold import fact_in, fact_record, in_parts
from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, Now, Outcome, Parked
from broker.kernel.theme import Wakers
from broker.messages.acceptance import Acceptance
from broker.messages.marking import marked
from broker.messages.one_by_one import one_by_one
from broker.messages.trace import Trace
from broker.messages.whole_records import records_of
from broker.producers.window import Numbers
from broker.settings import BrokerSettings
from broker.store.destinations import Incoming
from broker.store.message_store import MessageStore
from broker.transactions.begun import Begun, numbers_of
from broker.transactions.fold import COMMITTED, ROLLED_BACK, TOPIC, Half, Halves
from broker.transactions.schedule import RAMP_S, Schedule
from penstock.errors import (
    Busy,
    Damaged,
    HalfNotFound,
    InvalidRequest,
    OutcomeStands,
    PenstockError,
    StorageFailed,
    StorageFull,
    TooLarge,
    from_wire,
)
from penstock.protocol.message import (
    BODY_BYTES_MAX,
    FLAG_ONCE,
    FLAG_SEQUENCED,
    FLAG_WOKEN,
    FRAME_HEAD_BYTES,
    HALF,
    decode_message,
)
from penstock.protocol.requests.request import Done, Result
from penstock.protocol.requests.transactions import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    BeginHalf,
    BeginHalves,
    CheckHalf,
    EndHalves,
    HalfBegun,
    HalfEnded,
    HalfOutcome,
    HalfRow,
    HalvesBegun,
    HalvesEnded,
    HalvesPage,
    HalvesToCheck,
    ListHalves,
    WatchHalves,
)
from penstock.protocol.runs import Run, checksum_of, decode_runs, encode_runs, record_of

WAIT_S_MAX: Final = 60.0
CHECK_COUNT_MAX: Final = 64
CHECK_BYTES_MAX: Final = 1 << 20
GROUP_BYTES_MAX: Final = 255
PAGE_MAX: Final = 1_000
_FACT_BYTES: Final = 1_024
"""Room for what a fact adds to the record in it."""
GRACE_S: Final = 1.0
"""Seconds in which a producer may take a half that is due; then its round passes without one. Less where checks follow
each other faster."""
NOT_ASKED: Final = "no producer of the group was there to be asked"
NOT_ANSWERED: Final = "its producers gave no outcome"

CHECKS_PER_S: Final = 100.0
"""Halves of a group that are given to its producers per second: what they look up for each is their database's
work."""
GROUPS_MAX: Final = 10_000
"""Maximum number of groups for which the rate of checks is remembered."""

_log = logging.getLogger(__name__)


def half_waker(group: str) -> str:
    """The waker of a group, for a half that is due to be checked; no queue has such a name."""
    return f"half {group}"


class TransactionRequests:
    """Transactional messages of one broker."""

    def __init__(
        self,
        halves: Halves,
        store: MessageStore,
        acceptance: Acceptance,
        settings: BrokerSettings,
        now: float,
        wakers: Wakers,
        trace: Trace,
    ) -> None:
        self._trace = trace
        self._begun = Begun(halves, acceptance.repeats)
        self._halves = halves
        self._store = store
        self._acceptance = acceptance
        self._halves_max = settings.halves_max
        self._bytes_max = min(settings.halves_bytes_max, settings.carried_bytes_max)
        self._checks_max = settings.half_checks_max
        self._schedule = Schedule(settings.half_check_after_s)
        self._grace_s = min(GRACE_S, settings.half_check_after_s)
        self._allowance: dict[str, tuple[float, float]] = {}  # by group: checks at a time
        self._held_up: set[str] = set()  # groups of which more halves are due than may be checked now
        self._unasked = {half.group for _, half in halves.items() if half.parked == NOT_ASKED}
        self._now, self._now_ms = now, 0
        self._wakers = wakers
        self._committed = self._rolled_back = self._asked = 0
        for place, (id, half) in enumerate(halves.items()):
            if not half.parked:
                due_s = now + self._schedule.delay_s(id, 0) + RAMP_S * place / len(halves)
                self._schedule.put(id, half.group, due_s)

    # ------------------------------------------------------------ begin and end

    @handles(BeginHalves)
    def begin(self, request: BeginHalves, now: float, now_ms: int) -> Outcome:
        """Stores halves, each or none of it."""
        _check_group(request.group)
        records = records_of(request.body, request.count)
        ids, refused = one_by_one(records, lambda record: self._begin(request.group, record, now, now_ms), 0)
        return AfterQuorum(HalvesBegun(tuple(ids), tuple(refused)), self._store.written)

    @handles(BeginHalf)
    def begin_one(self, request: BeginHalf, now: float, now_ms: int) -> Outcome:
        """Stores one half of several messages, all or none of them."""
        _check_group(request.group)
        body = bytes(request.body)
        if checksum_of(body) != request.checksum:
            raise InvalidRequest(f"the {len(body)} bytes of runs do not match their checksum; nothing was stored")
        runs = decode_runs(body)
        if not runs or sum([len(run.bodies) for run in runs]) != request.count:
            raise InvalidRequest(f"the runs do not hold {request.count} messages; nothing was stored")
        sequenced = [run.flag & FLAG_SEQUENCED for run in runs]
        _ends_once(runs)
        _, destinations, refused, *_ = self._acceptance.take(runs, now_ms)
        if refused:
            return Now(HalfBegun(0, tuple(refused)))
        begun = self._begun.look_at(request.group, numbers_of(runs, destinations, sequenced))
        new, id = begun.new_of(runs), 0
        if new:
            body = body if len(new) == len(runs) else encode_runs(new)
            count = sum([len(run.bodies) for run in new])
            id = self._store_half(request.group, body, count, begun.numbers, now, now_ms)
        return AfterQuorum(begun.answer(runs, id), self._store.written)

    def _begin(self, group: str, record: bytes, now: float, now_ms: int) -> int:
        taken = self._acceptance.take_record(record, now_ms)
        begun = self._begun.look_at(group, numbers_of([taken.run], [taken.destination], [taken.run.counts]))
        return begun.ids[0] or self._store_half(group, record, 0, begun.numbers, now, now_ms)

    def _store_half(
        self, group: str, messages: bytes, count: int, numbers: Sequence[Numbers], now: float, now_ms: int
    ) -> int:
        if len(messages) > BODY_BYTES_MAX - _FACT_BYTES:
            raise TooLarge(f"a half has at most {BODY_BYTES_MAX - _FACT_BYTES} bytes, not {len(messages)}")
        fact = fact_record(TOPIC, Halves.begin(group, messages, count, numbers))
        size = FRAME_HEAD_BYTES + fact.run.size
        if len(self._halves) >= self._halves_max or self._halves.bytes + size > self._bytes_max:
            raise Busy(
                f"there are {len(self._halves)} halves with {self._halves.bytes} bytes: the limit is reached",
                hint="`penstock transaction list` shows those without an outcome; halves_max and halves_bytes_max",
            )
        [placed] = self._store.append([fact], now_ms)
        self._schedule.put(placed.position, group, now + self._schedule.delay_s(placed.position, 0))
        return placed.position

    @handles(EndHalves)
    def end(self, request: EndHalves, now: float, now_ms: int) -> Outcome:
        """Commits halves, rolls them back, or leaves them to later checks; the first outcome stands."""
        _check_group(request.group)
        asked = request.outcomes
        outcomes, refused = one_by_one(asked, lambda one: self._end(request.group, one, now_ms), "")
        ended = [HalfEnded(one.id, outcome) for one, outcome in zip(asked, outcomes, strict=True)]
        for at, code, message in refused:
            id = asked[at].id
            ended[at] = HalfEnded(id, self._halves.outcome(id), code, message)
        return AfterQuorum(HalvesEnded(tuple(ended)), self._store.written)

    def _end(self, group: str, wanted: HalfOutcome, now_ms: int) -> str:
        if wanted.outcome not in (COMMIT, ROLLBACK, UNKNOWN):
            raise InvalidRequest(f"an outcome is {COMMIT}, {ROLLBACK} or {UNKNOWN}, not {wanted.outcome!r}")
        half = self._halves.get(wanted.id)
        if half is None:
            return self._stands(wanted)
        if half.group != group:
            raise HalfNotFound(f"the half {wanted.id} is of another group than {group}")
        if wanted.outcome == UNKNOWN:
            return UNKNOWN
        if wanted.outcome == ROLLBACK and self._halves.woken(wanted.id):
            return self._stands(wanted)
        if wanted.outcome == ROLLBACK:
            self._store.append([fact_record(TOPIC, Halves.rollback(wanted.id))], now_ms)
            self._rolled_back += 1
        else:
            self._commit(wanted.id, half, now_ms)
            self._committed += 1
        self._schedule.drop(wanted.id)
        return wanted.outcome

    def _stands(self, wanted: HalfOutcome) -> str:
        stands = self._halves.outcome(wanted.id)
        if not stands:
            raise HalfNotFound(f"there is no half {wanted.id}: it was ended long ago, or never began")
        if wanted.outcome not in (stands, UNKNOWN):
            done = {COMMITTED: "committed", ROLLED_BACK: "rolled back"}[stands]
            raise OutcomeStands(f"the half {wanted.id} was {done} already")
        return stands

    def _commit(self, id: int, half: Half, now_ms: int) -> None:
        """Stores the messages of a half: of several those that are not stored yet, in as many appends as segments have
        room for."""
        if not half.messages:
            self._append([self._committed_message(id, half, now_ms)], now_ms)
            return
        batch = self._committed_runs(id, half, now_ms)
        try:
            self._append(batch, now_ms)
        except TooLarge:
            for run, to in batch:
                for number, body in enumerate(run.bodies):
                    self._append([Incoming(run.of([body], number), to)], now_ms)

    def _append(self, batch: Sequence[Incoming], now_ms: int) -> None:
        runs, destinations = [one.run for one in batch], [one.destination for one in batch]
        self._store.append_runs(runs, destinations, now_ms)
        if self._trace.is_on:
            self._trace.stored(runs, destinations, now_ms)

    def _committed_runs(self, id: int, half: Half, now_ms: int) -> list[Incoming]:
        """The messages of a half that are not stored yet. Raises what one is refused with; the half is parked then."""
        runs, passed = list[Run](), self._halves.woken(id)
        for run in _runs_in(self._content_of(half)):
            if passed < len(run.bodies):
                runs.append(run.of(run.bodies[passed:], passed) if passed else run)
            passed = max(0, passed - len(run.bodies))
        taken, destinations, refused, *_ = self._acceptance.take(runs, now_ms, is_promised=True)
        if refused:
            error = from_wire(refused[0].code, refused[0].message)
            self._now_ms = now_ms
            self._park(id, f"its commit was refused: {error.message}")
            raise error
        return [marked(Incoming(*one), FLAG_WOKEN, HALF, str(id)) for one in zip(taken, destinations, strict=True)]

    def _committed_message(self, id: int, half: Half, now_ms: int) -> Incoming:
        """The message of a half, ready to append. Raises what it is refused with; it is parked then."""
        record = self._record_of(half)
        try:
            taken = self._acceptance.take_record(record, now_ms, is_promised=True)
        except (StorageFull, StorageFailed):
            raise
        except PenstockError as error:
            self._now_ms = now_ms
            self._park(id, f"its commit was refused: {error.message}")
            raise
        return marked(taken, FLAG_WOKEN, HALF, str(id))

    def _content_of(self, half: Half) -> bytes:
        """The messages of a half, as they are stored. Raises ``Damaged``."""
        return Halves.messages_in(fact_in(self._store.frame(half.position)))

    def _record_of(self, half: Half) -> bytes:
        """The records of a half's messages, end to end. Raises ``Damaged``."""
        content = self._content_of(half)
        if not half.messages:
            return content
        return b"".join(
            [record_of(run.of([body], number)) for run in _runs_in(content) for number, body in enumerate(run.bodies)]
        )

    # ------------------------------------------------------------ checks

    @handles(WatchHalves)
    def watch(self, request: WatchHalves, now: float, now_ms: int) -> Outcome:
        """Halves that a producer is asked about; parked while none is due."""
        _check_group(request.group)
        if request.count_max < 1 or request.wait_s < 0:
            raise InvalidRequest("count_max is at least 1, wait_s at least 0")
        self._now, self._now_ms = now, now_ms
        self._reopen_unasked(request.group)
        found = self._to_check(request)
        if found.halves or not request.wait_s:
            return Now(found)

        def again(last: bool) -> Result | None:
            try:
                found = self._to_check(request)
            except PenstockError as error:
                return error.as_result()
            return found if found.halves or last else None

        return Parked((half_waker(request.group),), now + min(request.wait_s, WAIT_S_MAX), again)

    def _reopen_unasked(self, group: str) -> None:
        """Halves that were parked because no producer was there are asked about now that there is one."""
        if group not in self._unasked:
            return
        for id, half in list(self._halves.items()):
            if half.group == group and half.parked == NOT_ASKED:
                self._store.append([fact_record(TOPIC, Halves.reopen(id))], self._now_ms)
                self._schedule.put(id, group, self._now)
        self._unasked.discard(group)
        self._schedule.advance(self._now)

    def _to_check(self, request: WatchHalves) -> HalvesToCheck:
        rows: list[HalfRow] = []
        records: list[bytes] = []
        size = 0
        ready = self._schedule.ready(request.group)
        allowed = self._allowed(request.group) if ready else 0
        if allowed < len(ready):
            self._held_up.add(request.group)
        for id in ready[: min(request.count_max, CHECK_COUNT_MAX, allowed)]:
            half = self._halves.get(id)
            if half is None or (rows and size + half.size > CHECK_BYTES_MAX):
                continue
            try:
                record = self._record_of(half)
            except Damaged as error:
                self._park(id, str(error))
                continue
            if self._next_round(id, half, is_asked=True):
                size += half.size
                records.append(record)
                rows.append(_row(id, half._replace(checks=half.checks + 1), record))
        self._asked += len(rows)
        if rows:
            if len(self._allowance) > GROUPS_MAX:
                self._allowance.clear()
            self._allowance[request.group] = (allowed - len(rows), self._now)
        return HalvesToCheck(tuple(rows), b"".join(records))

    def _allowed(self, group: str) -> int:
        """How many halves of a group may be checked now."""
        left, at = self._allowance.get(group, (CHECKS_PER_S, self._now))
        return int(min(CHECKS_PER_S, left + (self._now - at) * CHECKS_PER_S))

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """Wakes producers that wait for halves which are due; where none takes one, its round passes without. Raises
        ``StorageFull``."""
        self._now, self._now_ms = now, now_ms
        for id in self._halves.unfinished():
            half = self._halves.get(id)
            if half is not None and not half.parked:
                self._finish(id, half)
        held_up, self._held_up = self._held_up, set()
        for group in held_up.union([group for _, group in self._schedule.advance(now)]):
            self._wakers[half_waker(group)] = None
        for id in self._schedule.overdue(now - self._grace_s, CHECK_COUNT_MAX):
            half = self._halves.get(id)
            if half is not None and half.group not in held_up:
                self._next_round(id, half, is_asked=False)

    def _finish(self, id: int, half: Half) -> None:
        """A half whose commit was cut off: stores what is missing of it. Raises ``StorageFull``."""
        try:
            self._commit(id, half, self._now_ms)
        except (StorageFull, StorageFailed):
            raise
        except PenstockError as error:  # it is parked
            _log.warning("the commit of half %d is not whole: %s", id, error)
        else:
            self._schedule.drop(id)

    def _next_round(self, id: int, half: Half, *, is_asked: bool) -> bool:
        """A half was due. Returns ``False`` where it has had all its rounds and is parked."""
        if half.rounds >= self._checks_max:
            self._park(id, NOT_ANSWERED if half.checks else NOT_ASKED)
            return False
        self._store.append([fact_record(TOPIC, Halves.round(id, is_asked=is_asked))], self._now_ms)
        self._schedule.put(id, half.group, self._now + self._schedule.delay_s(id, half.rounds + 1))
        return True

    def _park(self, id: int, reason: str) -> None:
        self._store.append([fact_record(TOPIC, Halves.set_aside(id, reason))], self._now_ms)
        self._schedule.drop(id)
        half = self._halves.get(id)
        if half is not None and reason == NOT_ASKED:
            self._unasked.add(half.group)
        _log.warning("the half %d waits for an operator (`penstock transaction list`): %s", id, reason)

    # ------------------------------------------------------------ operators

    @handles(ListHalves)
    def list_all(self, request: ListHalves, now: float, now_ms: int) -> Outcome:
        """A page of the halves, by id."""
        if request.count_max < 1:
            raise InvalidRequest("count_max is at least 1")
        count_max = min(request.count_max, PAGE_MAX)
        found = self._halves.after(request.after, count_max)
        rows = tuple(self._listed(id, half) for id, half in found)
        return Now(HalvesPage(rows, found[-1][0] if len(found) == count_max else 0, len(self._halves)))

    def _listed(self, id: int, half: Half) -> HalfRow:
        try:
            return _row(id, half, self._record_of(half))
        except Damaged:
            return HalfRow(id, half.group, half.born_ms, half.checks, half.parked, "", "", 0)

    @handles(CheckHalf)
    def check(self, request: CheckHalf, now: float, now_ms: int) -> Outcome:
        """Has a half asked for again from the beginning, now."""
        half = self._halves.get(request.id)
        if half is None:
            raise HalfNotFound(f"there is no half {request.id}")
        self._store.append([fact_record(TOPIC, Halves.reopen(request.id))], now_ms)
        self._schedule.put(request.id, half.group, now)
        return AfterQuorum(Done(), self._store.written)

    def carry(self, position: int, now_ms: int, count_max: int = 500, bytes_max: int = 1 << 20) -> bool:
        """Appends halves whose records are before a position once more, a bounded number at a time; returns whether
        none is left there. Raises ``StorageFull``."""
        old = self._halves.before(position, count_max)
        for part in islice(in_parts(old, lambda one: one[1].size, bytes_max), 1):
            self._store.append([self._carried(id, half) for id, half in part], now_ms)
        return not self._halves.before(position, 1)

    def _carried(self, id: int, half: Half) -> Incoming:
        try:
            return fact_record(TOPIC, Halves.carry(id, self._content_of(half)))
        except Damaged as error:
            _log.error("the half %d is lost: %s", id, error)
            return fact_record(TOPIC, Halves.rollback(id))

    def figures(self) -> dict[str, float]:
        """Gauges and counters of transactional messages."""
        return {
            "penstock_halves": len(self._halves),
            "penstock_halves_parked": sum([bool(half.parked) for _, half in self._halves.items()]),
            "penstock_halves_committed_total": self._committed,
            "penstock_halves_rolled_back_total": self._rolled_back,
            "penstock_halves_checked_total": self._asked,
        }


def _row(id: int, half: Half, records: bytes) -> HalfRow:
    message = decode_message(records[: int.from_bytes(records[:4], "big")])
    key = message.key if isinstance(message.key, str) else message.key.hex()
    count = half.messages or 1
    return HalfRow(id, half.group, half.born_ms, half.checks, half.parked, message.topic, key, len(records), count)


def _runs_in(body: bytes) -> list[Run]:
    """The runs of a half: they are stored once because it ends once, not by their numbers."""
    runs = decode_runs(body)
    _ends_once(runs)
    return runs


def _ends_once(runs: Sequence[Run]) -> None:
    for run in runs:
        run.counts = run.counts or run.flag & FLAG_SEQUENCED != 0
        run.flag &= ~(FLAG_SEQUENCED | FLAG_ONCE)


def _check_group(group: str) -> None:
    if not 0 < len(group.encode("utf-8", "replace")) <= GROUP_BYTES_MAX:
        raise InvalidRequest(f"a producer group has 1 to {GROUP_BYTES_MAX} bytes")
