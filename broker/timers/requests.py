"""Requests about delayed messages, and the tick that delivers them.

A message is checked like an append when it is set and again when it wakes, because its topic may have changed. If it is
refused when it wakes, it becomes a dead letter of ``timers`` with the reason, so it is never lost. It is never early:
it wakes by a clock that stands still when the machine's clock jumps forward, until an operator confirms that clock
(``broker/timer_clock.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice
from typing import Final

from broker.kernel.fold import fact_in, fact_record, in_parts
from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, Now, Outcome
from broker.messages.acceptance import Acceptance
from broker.messages.dead_letters import DeadLetters, attempts_of
from broker.messages.marking import marked
from broker.messages.one_by_one import one_by_one
from broker.messages.trace import Trace
from broker.messages.whole_records import records_of
from broker.settings import BrokerSettings
from broker.store.destinations import Incoming
from broker.store.message_store import MessageStore
from broker.timer_clock import JUMP_MS, TimerClock
from broker.timers.fold import SLEEP, TOPIC, Sleeper, Timers, timer_of
from penstock.errors import (
    Busy,
    Damaged,
    InvalidMessage,
    InvalidRequest,
    PenstockError,
    StorageFailed,
    StorageFull,
    TimerFired,
    TimerNotFound,
    TooLarge,
)
from penstock.protocol.message import (
    BODY_BYTES_MAX,
    FLAG_WOKEN,
    FRAME_HEAD_BYTES,
    TIMER,
    decode_message,
    record_topic,
)
from penstock.protocol.requests.messages import Refused
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.timers import (
    TIMER_FORGOTTEN,
    CancelTimer,
    ClockConfirmed,
    ConfirmClock,
    ListTimers,
    SetTimers,
    Timer,
    TimerSet,
    TimersPage,
    TimersSet,
)
from penstock.protocol.runs import DIGITS, NOWHERE

DELAY_MS_MAX: Final = 40 * 24 * 3_600_000
"""How far ahead a message may be due."""
WAKE_COUNT_MAX: Final = 2_000
WAKE_BYTES_MAX: Final = 4 << 20
PAGE_MAX: Final = 1_000
DEAD_LETTERS_OF: Final = "timers"
_NO_TIMER: Final = TimerSet(0, 0)
_TO_STORE: Final = -2
_FACT_BYTES: Final = 256
"""Room for what a fact adds to the record in it."""

_log = logging.getLogger(__name__)


class _Setting:
    """The timers of one request that are to be stored: their records, the bytes that all timers have with them, and the
    unique ids that they use."""

    __slots__ = ("bytes", "facts", "ids")

    def __init__(self, size: int) -> None:
        self.bytes = size
        self.facts: list[Incoming] = []
        self.ids: set[bytes] = set()


class TimerRequests:
    """Delayed messages of one broker."""

    def __init__(
        self,
        timers: Timers,
        store: MessageStore,
        acceptance: Acceptance,
        letters: DeadLetters,
        settings: BrokerSettings,
        clock: TimerClock,
        trace: Trace,
    ) -> None:
        self._clock = clock
        self._repeats = acceptance.repeats
        self._trace = trace
        self._timers = timers
        self._store = store
        self._acceptance = acceptance
        self._letters = letters
        self._bytes_max = min(settings.timers_bytes_max, settings.carried_bytes_max)
        self._fired = 0
        self._refused = 0
        self._damaged = 0
        self._late_ms = 0

    # ------------------------------------------------------------ requests

    @handles(SetTimers)
    def set(self, request: SetTimers, now: float, now_ms: int) -> Outcome:
        """Stores messages to be delivered later, each or none of it."""
        base_ms = now_ms if request.from_now else 0
        messages = zip(records_of(request.body, len(request.due_ms)), request.due_ms, strict=True)
        setting = _Setting(self._timers.bytes)
        timers, refused = one_by_one(
            messages, lambda one: self._set(one[0], base_ms + one[1], now_ms, setting), _NO_TIMER
        )
        full = self._store_facts(setting.facts, now_ms)
        facts = iter(setting.facts)
        for at, timer in enumerate(timers):
            if timer.id != _TO_STORE:
                continue
            position = next(facts).run.position
            if position >= 0:
                timers[at] = timer._replace(id=position)
            else:
                timers[at] = _NO_TIMER
                assert full is not None
                refused.append(Refused(at, full.code, full.message))
        return AfterQuorum(TimersSet(tuple(timers), tuple(sorted(refused))), self._store.written)

    def _set(self, record: bytes, due_ms: int, now_ms: int, setting: _Setting) -> TimerSet:
        if not now_ms - DELAY_MS_MAX <= due_ms <= now_ms + DELAY_MS_MAX:
            days = DELAY_MS_MAX // 86_400_000
            if due_ms < now_ms:
                raise InvalidRequest(f"the time of delivery is more than {days} days ago: it is probably wrong")
            raise InvalidRequest(f"a message is delivered at most {days} days later")
        if len(record) > BODY_BYTES_MAX - _FACT_BYTES:
            raise TooLarge(f"a delayed message has at most {BODY_BYTES_MAX - _FACT_BYTES} bytes, not {len(record)}")
        taken = self._acceptance.take_record(record, now_ms)
        unique_id = _number_of(taken)
        if unique_id:
            known = self._set_before(unique_id, due_ms)
            if known is not None:
                return known
            if unique_id in setting.ids:
                raise InvalidMessage("one request has this unique id twice")
        due_ms = max(due_ms, now_ms, self._timers.mark[0])
        fact = fact_record(TOPIC, Timers.sleep(due_ms, record), unique_id)
        size = FRAME_HEAD_BYTES + fact.run.size
        if setting.bytes + size > self._bytes_max:
            raise Busy(
                f"delayed messages have {setting.bytes} bytes: the limit is reached",
                hint="raise timers_bytes_max, or cancel some",
            )
        setting.bytes += size
        setting.ids.add(unique_id)
        setting.facts.append(fact)
        return TimerSet(_TO_STORE, due_ms)

    def _set_before(self, unique_id: bytes, due_ms: int) -> TimerSet | None:
        """The timer of a message that was sent before; ``None`` for a new one. Raises ``MessageForgotten``."""
        position = self._repeats.position_of_fact(TOPIC, unique_id)
        if position == NOWHERE:
            return None
        try:
            frame = self._store.frame(position) if position >= 0 else b""
        except Damaged:
            frame = b""
        if not frame:
            return TimerSet(TIMER_FORGOTTEN, due_ms)
        if not _is_timer(frame):
            raise InvalidMessage("a message that is not delayed has this unique id")
        return TimerSet(position, fact_in(frame)[1])

    def _store_facts(self, facts: Sequence[Incoming], now_ms: int) -> StorageFull | None:
        """Stores them in as few appends as may be; returns why those behind the first append are not stored."""
        for at, part in enumerate(in_parts(facts, _frame_bytes, self._store.batch_bytes_max)):
            try:
                self._store.append(part, now_ms)
            except StorageFull as error:
                if not at:
                    raise
                return error
        return None

    @handles(CancelTimer)
    def cancel(self, request: CancelTimer, now: float, now_ms: int) -> Outcome:
        """Takes a message back that is not delivered yet."""
        state = self._timers.state_of(request.due_ms, request.id)
        if state == "woken" and self._may_have_been(request.id):
            raise TimerFired(f"the message of timer {request.id} was already delivered")
        if state != "sleeping":
            raise TimerNotFound(f"there is no timer {request.id} at {request.due_ms} ms")
        self._store.append([fact_record(TOPIC, Timers.cancel(request.due_ms, request.id))], now_ms)
        return AfterQuorum(Done(), self._store.written)

    @handles(ListTimers)
    def list_all(self, request: ListTimers, now: float, now_ms: int) -> Outcome:
        """A page of the timers, in the order in which they fire."""
        if request.count_max < 1:
            raise InvalidRequest("count_max is at least 1")
        count_max = min(request.count_max, PAGE_MAX)
        found = self._timers.after(request.after_ms, request.after_id, count_max)
        rows = tuple(self._row(one) for one in found)
        after = (found[-1].due_ms, found[-1].id) if len(found) == count_max else (0, 0)
        frozen_s = self._clock.frozen_s
        return Now(TimersPage(rows, *after, len(self._timers), self._timers.bytes, frozen_s, int(frozen_s and now_ms)))

    def _row(self, sleeper: Sleeper) -> Timer:
        try:
            record = self._record_of(sleeper)
        except Damaged:
            return Timer(sleeper.id, sleeper.due_ms, "", "", sleeper.size, damaged=True)
        message = decode_message(record)
        key = message.key if isinstance(message.key, str) else message.key.hex()
        return Timer(sleeper.id, sleeper.due_ms, message.topic, key, len(record))

    @handles(ConfirmClock)
    def confirm_clock(self, request: ConfirmClock, now: float, now_ms: int) -> Outcome:
        """The machine's clock is right, an operator says: what is due by it fires with the next tick."""
        ahead_s = self._clock.fires_until_ms() is None and self._clock.frozen_s
        if ahead_s and abs(ahead_s - request.ahead_s) * 1000 > JUMP_MS:
            raise InvalidRequest(
                f"the clock is {ahead_s:.0f} s ahead by now, not {request.ahead_s:.0f} s",
                hint="look again, and confirm",
            )
        return Now(ClockConfirmed(self._clock.confirm()))

    # ------------------------------------------------------------ waking

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """Delivers what is due, a bounded number at a time. Raises ``StorageFull``: then all of it is still asleep."""
        until_ms = self._clock.fires_until_ms()
        if until_ms is None:
            return
        room = min(WAKE_BYTES_MAX, self._store.batch_bytes_max // 2)
        due = self._timers.due(until_ms, WAKE_COUNT_MAX, room)
        if due:
            self._late_ms = now_ms - due[0].due_ms
            self._wake(due, now_ms)
        else:
            self._late_ms = 0

    def _wake(self, due: Sequence[Sleeper], now_ms: int) -> None:
        frames = self._store.frames([(one.position, one.size) for one in due])
        # in their order: each says that those before it have woken
        batch = [self._awake(one, frame, now_ms) for one, frame in zip(due, frames, strict=True)]
        self._store.append(batch, now_ms)
        if self._trace.is_on:
            self._trace.stored([one.run for one in batch], [one.destination for one in batch], now_ms)
        self._fired += len(batch)

    def _awake(self, sleeper: Sleeper, frame: bytes, now_ms: int) -> Incoming:
        """The records for a message that wakes: the message; a dead letter if it is refused now; a note of the loss if
        it is damaged."""
        if not frame:
            return self._gone(sleeper)
        record = Timers.record_in(fact_in(frame))
        retry = self._letters.as_stored(record, now_ms)
        if retry is not None:
            return marked(retry, FLAG_WOKEN, TIMER, timer_of(sleeper))
        try:
            taken = self._acceptance.take_record(record, now_ms, is_promised=True)
        except (StorageFull, StorageFailed):
            raise  # it sleeps on
        except PenstockError as error:
            self._refused += 1
            _log.warning("a delayed message goes to the dead letters of %s: %s", DEAD_LETTERS_OF, error.message)
            taken = self._letters.letter(DEAD_LETTERS_OF, record, error.message, now_ms, attempts_of(record))
        return marked(taken, FLAG_WOKEN, TIMER, timer_of(sleeper))

    def _gone(self, sleeper: Sleeper) -> Incoming:
        self._damaged += 1
        _log.error("the delayed message %d is lost: its record at %d is damaged", sleeper.id, sleeper.position)
        return fact_record(TOPIC, Timers.cancel(sleeper.due_ms, sleeper.id))

    def _may_have_been(self, position: int) -> bool:
        """Whether a message that slept may be stored at a position: true where nothing can be read any more."""
        if not self._store.start <= position < self._store.written:
            return position < self._store.start
        try:
            frame = self._store.frame(position)
        except Damaged:
            return True
        return _is_timer(frame)

    def _record_of(self, sleeper: Sleeper) -> bytes:
        """The message of a sleeping one. Raises ``Damaged``."""
        return Timers.record_in(fact_in(self._store.frame(sleeper.position)))

    def carry(self, position: int, now_ms: int, count_max: int = 500, bytes_max: int = 1 << 20) -> bool:
        """Appends sleeping messages whose records are before a position once more, a bounded number at a time; returns
        whether none is left there. Raises ``StorageFull``."""
        old = self._timers.before(position, count_max)
        for part in islice(in_parts(old, lambda one: one.size, bytes_max), 1):
            self._store.append([self._carried(one) for one in part], now_ms)
        return not self._timers.before(position, 1)

    def _carried(self, sleeper: Sleeper) -> Incoming:
        try:
            return fact_record(TOPIC, Timers.carry(sleeper, self._record_of(sleeper)))
        except Damaged:
            return self._gone(sleeper)

    def figures(self) -> dict[str, float]:
        """Gauges and counters of delayed messages."""
        return {
            "penstock_timers": len(self._timers),
            "penstock_timer_bytes": self._timers.bytes,
            "penstock_timers_fired_total": self._fired,
            "penstock_timers_refused_total": self._refused,
            "penstock_timers_damaged_total": self._damaged,
            "penstock_timers_late_seconds": self._late_ms / 1000.0,
            "penstock_timers_frozen_s": round(self._clock.frozen_s),
        }


def _number_of(taken: Incoming) -> bytes:
    """The unique id under which a message is stored once; empty where it is not."""
    return taken.destination.producer + taken.run.tail[-DIGITS:] if taken.run.counts else b""


def _is_timer(frame: bytes) -> bool:
    """Whether a message sleeps, or slept, in the record of a frame."""
    return record_topic(memoryview(frame)[FRAME_HEAD_BYTES:]) == TOPIC.encode() and fact_in(frame)[0] == SLEEP


def _frame_bytes(fact: Incoming) -> int:
    return FRAME_HEAD_BYTES + fact.run.size
