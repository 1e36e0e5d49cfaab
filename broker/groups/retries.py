"""Messages that a member gives back: each comes again later, or becomes a dead letter after its last attempt.

The broker takes the message from its own log, so a client cannot change it. One record is stored: a sleeping message of
the group's retry topic, or the dead letter. The member passes the message when that is durable. A repeated give-back
gets the first answer (``given_back.py``).
"""

from __future__ import annotations

from typing import Final

from broker.groups.given_back import property_for
from broker.groups.members import Groups
from broker.kernel.checks import NAME_BYTES_MAX, check_text
from broker.kernel.fold import fact_record
from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, Outcome
from broker.messages.dead_letters import DeadLetters, attempts_of
from broker.messages.trace import Trace
from broker.state import BrokerState
from broker.store.destinations import Incoming
from broker.store.message_store import MessageStore
from broker.timers.fold import TOPIC, GivenBack, Timers
from broker.timers.requests import DELAY_MS_MAX
from penstock.errors import Fenced, InvalidRequest, PenstockError, StorageFailed
from penstock.protocol.message import FLAG_GIVEN_BACK, FRAME_HEAD_BYTES, property_of, record_properties, record_topic
from penstock.protocol.properties import GIVEN_BACK, ORIGIN_TOPIC, REASON
from penstock.protocol.requests.pops import Pop, SendPoppedBack
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.retries import (
    BY_TABLE,
    SendAllBack,
    SendBack,
    SendLetterAgain,
    SentAllBack,
    SentBack,
    WentBack,
)
from penstock.protocol.runs import record_of
from topicmap.queues import dead_letter_topic

ATTEMPTS_MAX: Final = 1_000
ROWS_MAX: Final = 1_000
BYTES_AT_ONCE: Final = 4 << 20
_ORIGIN_TOPIC: Final = ORIGIN_TOPIC.encode()
_REASON: Final = REASON.encode()
_Told = dict[tuple[str, int], SentBack]


class RetryRequests:
    """Messages that members of one broker's groups give back."""

    def __init__(
        self,
        groups: Groups,
        store: MessageStore,
        state: BrokerState,
        letters: DeadLetters,
        delays_s: tuple[float, ...],
        trace: Trace,
    ) -> None:
        """``delays_s``: how long a message waits before its second attempt, its third, and so on; the last one counts
        for all that follow."""
        self._groups = groups
        self._trace = trace
        self._store = store
        self._timers = state.timers
        self._letters = letters
        self._delays_ms = [int(delay_s * 1000) for delay_s in delays_s]
        self._returns = state.returns
        self._offsets = state.offsets
        self._retried = 0
        self._repeated = 0
        self._dead = 0

    @handles(SendBack)
    def send_back(self, request: SendBack, now: float, now_ms: int) -> Outcome:
        """Has a message come again later, or stores it as a dead letter."""
        self._groups.check_commit(request.group, request.member, request.generation, [request.queue])
        answer, record = self._once(request, {}, now_ms)
        if record is not None:
            self._store.append([record], now_ms)
        return AfterQuorum(answer, self._store.written)

    @handles(SendAllBack)
    def send_all_back(self, request: SendAllBack, now: float, now_ms: int) -> Outcome:
        """The same for several messages, with as few appends as may be."""
        if not 0 < len(request.rows) <= ROWS_MAX:
            raise InvalidRequest(f"1 to {ROWS_MAX} messages are given back at a time")
        who = request.group, request.member, request.generation
        self._groups.check_commit(*who, list(dict.fromkeys([row.queue for row in request.rows])))
        answers: list[WentBack] = []
        records: list[Incoming] = []
        size = 0
        told: _Told = {}
        for queue, offset, delay_ms, reason in request.rows:
            one = SendBack(*who, queue, offset, delay_ms, request.attempts_max, reason)
            try:
                answer, record = self._once(one, told, now_ms)
            except StorageFailed:
                raise
            except PenstockError as error:
                answers.append(WentBack(0, 0, error.code, error.message))
                continue
            answers.append(WentBack(answer.attempt, answer.due_ms, 0, ""))
            if record is None:
                continue
            records.append(record)
            size += sum([len(body) for body in record.run.bodies])
            if size >= BYTES_AT_ONCE:
                self._store.append_facts(records, now_ms)
                records, size = [], 0
        if records:
            self._store.append_facts(records, now_ms)
        return AfterQuorum(SentAllBack(tuple(answers)), self._store.written)

    def _once(self, request: SendBack, told: _Told, now_ms: int) -> tuple[SentBack, Incoming | None]:
        """The outcome for a message, and its record; ``None`` for a repeated give-back. ``told``: answers
        of this request so far."""
        group, queue, offset = request.group, request.queue, request.offset
        known = told.get((queue, offset)) or self._returns.get(group, queue, offset)
        if known is not None:
            self._repeated += 1
            return known, None
        self._check_not_passed(group, queue, offset)
        answer, record = self.given_back(request, 0, now_ms)
        told[queue, offset] = answer
        return answer, record

    def _check_not_passed(self, group: str, queue: str, offset: int) -> None:
        """Raises ``Fenced`` for a message that the group has passed: other members processed it, or gave it back, while
        they held the queue."""
        committed = self._offsets.of(group).get(queue, 0)
        if 0 <= offset < committed:
            raise Fenced(f"group {group} has passed offset {offset} of {queue}: it is at {committed}")

    @handles(SendLetterAgain)
    def send_letter_again(self, request: SendLetterAgain, now: float, now_ms: int) -> Outcome:
        """Stores a dead letter in the group's retry topic, to be tried from the first attempt on."""
        check_text("a group's name", request.group, NAME_BYTES_MAX)
        frame = self._store.frame_at(f"{dead_letter_topic(request.group)}:0", request.offset)
        record = frame[FRAME_HEAD_BYTES:]
        reason = property_of(record_properties(record), _REASON).decode("utf-8", "replace")
        self._store.append([self._letters.retry(request.group, record, reason, now_ms, 0)], now_ms)
        return AfterQuorum(Done(), self._store.written)

    def given_back(self, request: SendBack | SendPoppedBack, deliveries: int, now_ms: int) -> tuple[SentBack, Incoming]:
        """The outcome for a message, and its record. ``deliveries``: attempts that its record does not
        know of."""
        if not 1 <= request.attempts_max <= ATTEMPTS_MAX:
            raise InvalidRequest(f"a message is tried 1 to {ATTEMPTS_MAX} times")
        if request.delay_ms != BY_TABLE and not 0 <= request.delay_ms <= DELAY_MS_MAX:
            raise InvalidRequest(f"a message comes again after 0 to {DELAY_MS_MAX} ms")
        record = self._store.frame_at(request.queue, request.offset)[FRAME_HEAD_BYTES:]
        noted = self._offsets.attempts(request.group, request.queue, request.offset)
        attempt = max(attempts_of(record) + deliveries + 1, noted)
        if attempt >= request.attempts_max:
            letter = self.letter(request, request.offset, record, request.reason, now_ms, attempt)
            return SentBack(attempt, 0), letter
        self._retried += 1
        delay_ms = self._delay_ms(attempt) if request.delay_ms == BY_TABLE else request.delay_ms
        due_ms = now_ms + delay_ms
        self._tell("retried", request, request.offset, record, request.reason, now_ms, attempt=attempt, due_ms=due_ms)
        origin = {"ORIGIN_QUEUE": request.queue, "ORIGIN_OFFSET": str(request.offset)}
        given = _given_back(request, request.offset, attempt, due_ms)
        if not delay_ms and given:
            origin[GIVEN_BACK] = property_for(given)
        retry = self._letters.retry(request.group, record, request.reason, now_ms, attempt, **origin)
        if not delay_ms:  # it need not sleep
            retry.run.flag |= FLAG_GIVEN_BACK if given else 0
            return SentBack(attempt, due_ms), retry
        due_ms = max(due_ms, self._timers.mark[0])
        given = given and given._replace(due_ms=due_ms)
        return SentBack(attempt, due_ms), fact_record(TOPIC, Timers.sleep(due_ms, record_of(retry.run), given))

    def letter(
        self,
        request: SendBack | SendPoppedBack | Pop,
        offset: int,
        record: bytes,
        reason: str,
        now_ms: int,
        attempt: int,
    ) -> Incoming:
        """The dead letter of a message of a queue, after its ``attempt``."""
        self._dead += 1
        self._tell("dead", request, offset, record, reason, now_ms)
        origin = {"ORIGIN_QUEUE": request.queue, "ORIGIN_OFFSET": str(offset)}
        given = _given_back(request, offset, attempt, 0)
        if given:
            origin[GIVEN_BACK] = property_for(given)
        letter = self._letters.letter(request.group, record, reason, now_ms, attempt, **origin)
        letter.run.flag |= FLAG_GIVEN_BACK if given else 0
        return letter

    def _tell(
        self,
        event: str,
        request: SendBack | SendPoppedBack | Pop,
        offset: int,
        record: bytes,
        reason: str,
        now_ms: int,
        **more: int,
    ) -> None:
        if not self._trace.is_on:
            return
        properties = record_properties(record)
        topic = property_of(properties, _ORIGIN_TOPIC) or record_topic(record)
        member = request.member if isinstance(request, SendBack) else request.taker
        about = {"queue": request.queue, "offset": offset, "reader": request.group, "member": member, "reason": reason}
        self._trace.given_back(topic.decode("utf-8", "replace"), properties, event, about | more, now_ms)

    def _delay_ms(self, attempt: int) -> int:
        return self._delays_ms[min(attempt, len(self._delays_ms)) - 1]

    def figures(self) -> dict[str, float]:
        """Counters since start."""
        return {
            "penstock_retries_total": self._retried,
            "penstock_dead_letters_total": self._dead,
            "penstock_given_back_again_total": self._repeated,
        }


def _given_back(request: SendBack | SendPoppedBack | Pop, offset: int, attempt: int, due_ms: int) -> GivenBack | None:
    """The give-back to note for a member's message; ``None`` for a taker, which settles the message in the same
    append."""
    if not isinstance(request, SendBack):
        return None
    return GivenBack(request.group, request.queue, offset, attempt, due_ms)
