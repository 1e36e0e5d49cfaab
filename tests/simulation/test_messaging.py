"""Delayed, transactional and refused messages at two brokers and two name servers under faults: an hour of it.

``PENSTOCK_SEED=17`` runs that seed alone, ``PENSTOCK_SIMULATED_S=7200`` simulates two hours. A planted bug has the
number that it has in the project's list of likely ones.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker.groups import retries as broker_retries
from broker.groups.fold import Offsets
from broker.groups.given_back import Returns
from broker.kernel.fold import fact_record
from broker.kernel.outcomes import AfterQuorum, AfterSync, Now, Outcome
from broker.messages import dead_letters
from broker.messages.marking import marked
from broker.producers.repeats import Repeats
from broker.service import BrokerService
from broker.store_clock import StoreClock
from broker.timers import fold as timers_fold
from broker.timers.fold import TOPIC, Bucket, Sleeper, Timers, timer_of
from broker.timers.requests import TimerRequests
from broker.transactions.fold import Half, Halves
from broker.transactions.requests import TransactionRequests
from penstock.client.holdings import Holdings
from penstock.client.membership import Member
from penstock.client.wire_link import WireLink
from penstock.errors import PenstockError
from penstock.protocol.message import TIMER
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.retries import SendBack, SentBack
from penstock.protocol.requests.timers import CancelTimer, SetTimers
from penstock.protocol.requests.transactions import BeginHalves, EndHalves
from penstock.protocol.runs import NOWHERE
from tests.simulation import delays, halves, retries, tills
from tests.simulation.messaging import scenario
from tests.simulation.running import Run
from tests.simulation.seeds import must_see, simulated

ALL = (delays.Plain, delays.Delays, delays.Posts, halves.Halves, tills.Tills, retries.Retries)
LONG_S = float(os.environ.get("PENSTOCK_SIMULATED_S", "600"))
CATCH_WITHIN = 40
"""A planted bug must be caught by one of so many seeds."""
SHOWN = {
    *("kill", "both", "full", "names", "jump"),
    *("woken", "woken over a restart", "carried", "cancelled", "cancelled too late"),
    *("committed", "told which outcome stands", "parked", "parked without a check"),
    *("a listener was asked", "given back", "dead letters"),
}
"""What a run must have shown, or it proves little."""
RARE = {"power", "cut"}
"""What an hour must have shown too."""


def run(seed: int, workloads: Sequence[Any] = ALL, kinds: Sequence[str] = ()) -> Run:
    """Runs a seed and checks it; a failure says how to run it again, and what happened."""
    return simulated(
        seed,
        lambda simulation: scenario(simulation, workloads, kinds),
        lambda result: None,
        "test_messaging.py -k long",
    )


@pytest.mark.slow
def test_what_is_promised_of_messages_that_sleep_or_fail_holds_for_long(capsys: pytest.CaptureFixture[str]) -> None:
    if "PENSTOCK_SEED" in os.environ:
        run(int(os.environ["PENSTOCK_SEED"]))
        return
    simulated_s, shown, number = 0.0, Counter[str](), 0
    for number in itertools.count(1):
        done = run(number)
        simulated_s += done.simulated_s
        shown += done.result.events
        if simulated_s >= LONG_S:
            break
    with capsys.disabled():
        print(f"\nsimulated {simulated_s / 60:.0f} minutes of messaging under faults, {number} seeds: {dict(shown)}")
    expected = SHOWN | RARE if simulated_s >= 3600 else SHOWN
    assert shown.keys() >= expected, f"never seen: {expected - shown.keys()}"


def test_a_seed_gives_the_same_run_every_time() -> None:
    first, second = run(4), run(4)
    assert (first.digest, first.log) == (second.digest, second.log)


# ---------------------------------------------------------------- planted bugs: the bench must see them


def answer_before_it_is_durable(patch: pytest.MonkeyPatch, kind: type[Request]) -> None:
    def hasty(self: BrokerService, request: Request, now: float, now_ms: int) -> Outcome:
        outcome = handle(self, request, now, now_ms)
        is_hasty = isinstance(request, kind) and isinstance(outcome, AfterSync | AfterQuorum)
        return Now(outcome.result) if is_hasty else outcome  # type: ignore[union-attr]

    handle = BrokerService.handle
    patch.setattr(BrokerService, "handle", hasty)


def answer_for_delayed_messages_before_they_are_durable(patch: pytest.MonkeyPatch) -> None:
    answer_before_it_is_durable(patch, SetTimers)


def answer_for_a_cancel_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    answer_before_it_is_durable(patch, CancelTimer)


def say_that_it_fired_in_another_append(patch: pytest.MonkeyPatch) -> None:
    def apart(self: TimerRequests, due: Sequence[Sleeper], now_ms: int) -> None:
        for one in due:
            taken = self._acceptance.take_record(self._record_of(one), now_ms)
            self._store.append([marked(taken, 0, TIMER, timer_of(one))], now_ms)
        self._store.append([fact_record(TOPIC, Timers.cancel(one.due_ms, one.id)) for one in due], now_ms)

    patch.setattr(TimerRequests, "_wake", apart)


def let_retention_take_what_sleeps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TimerRequests, "carry", lambda self, position, now_ms: True)


def wait_for_the_end_of_the_minute(patch: pytest.MonkeyPatch) -> None:
    def due(self: Timers, now_ms: int, count_max: int, bytes_max: int) -> list[Sleeper]:
        return sound(self, now_ms // timers_fold.MINUTE_MS * timers_fold.MINUTE_MS - 1, count_max, bytes_max)

    sound = Timers.due
    patch.setattr(Timers, "due", due)


def deliver_the_whole_minute(patch: pytest.MonkeyPatch) -> None:
    def due(self: Timers, now_ms: int, count_max: int, bytes_max: int) -> list[Sleeper]:
        end_ms = (now_ms // timers_fold.MINUTE_MS + 1) * timers_fold.MINUTE_MS - 1
        return [one for one in sound(self, end_ms, count_max, bytes_max) if one.due_ms < end_ms]

    sound = Timers.due
    patch.setattr(Timers, "due", due)


def leave_the_last_that_woke_in_its_bucket(patch: pytest.MonkeyPatch) -> None:
    until = Bucket.until
    patch.setattr(Bucket, "until", lambda self, due_ms, id: until(self, due_ms, id) - 1)


def leave_out_the_minute_of_the_restart(patch: pytest.MonkeyPatch) -> None:
    def restore(self: Timers, snapshot: Any) -> None:
        minute = snapshot[0][0] // timers_fold.MINUTE_MS if snapshot else 0
        rows = [row for row in snapshot[1] if row[0] != minute] if snapshot else []
        sound(self, [snapshot[0], rows, *snapshot[2:]] if snapshot else None)

    sound = Timers.restore
    patch.setattr(Timers, "restore", restore)


def believe_what_the_clock_says(patch: pytest.MonkeyPatch) -> None:
    def ahead(self: StoreClock) -> int:
        return int(self._clock._clock.wall_ms())  # type: ignore[attr-defined]

    patch.setattr(StoreClock, "age_ms", ahead)
    patch.setattr(StoreClock, "wall_ms", ahead)


def cancel_in_memory_only(patch: pytest.MonkeyPatch) -> None:
    restore = Timers.restore

    def forgetful(self: Timers, snapshot: Any) -> None:
        restore(self, snapshot)
        self._cancel = lambda due_ms, id: None  # type: ignore[method-assign]

    patch.setattr(Timers, "restore", forgetful)


def answer_for_halves_before_they_are_durable(patch: pytest.MonkeyPatch) -> None:
    answer_before_it_is_durable(patch, BeginHalves)


def answer_for_an_outcome_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    answer_before_it_is_durable(patch, EndHalves)


def let_retention_take_halves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionRequests, "carry", lambda self, position, now_ms: True)


def let_a_second_outcome_overwrite_the_first(patch: pytest.MonkeyPatch) -> None:
    def end(self: Halves, id: int, outcome: str) -> None:
        if id in self._outcomes or outcome == "commit":
            sound(self, id, outcome)
        else:
            self._outcomes[id] = outcome  # the half is still there

    sound = Halves._end
    patch.setattr(Halves, "_end", end)


def agree_with_any_outcome(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionRequests, "_stands", lambda self, wanted: wanted.outcome)


def show_halves_at_once(patch: pytest.MonkeyPatch) -> None:
    def begin(self: TransactionRequests, group: str, record: bytes, now: float, now_ms: int) -> int:
        self._store.append([self._acceptance.take_record(record, now_ms)], now_ms)
        return sound(self, group, record, now, now_ms)

    sound = TransactionRequests._begin
    patch.setattr(TransactionRequests, "_begin", begin)


def count_checks_that_nobody_had(patch: pytest.MonkeyPatch) -> None:
    def careless(self: TransactionRequests, id: int, half: Half, *, is_asked: bool) -> bool:
        return sound(self, id, half, is_asked=True)

    sound = TransactionRequests._next_round
    patch.setattr(TransactionRequests, "_next_round", careless)


def drop_halves_after_the_last_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Halves, "set_aside", staticmethod(lambda id, reason: Halves.rollback(id)))


def answer_for_a_retry_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    answer_before_it_is_durable(patch, SendBack)


def forget_how_often_it_was_tried(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(broker_retries, "attempts_of", lambda record: 0)


def try_once_more_than_allowed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(broker_retries, "attempts_of", lambda record: dead_letters.attempts_of(record) - 1)


def swallow_dead_letters(patch: pytest.MonkeyPatch) -> None:
    def send_back(self: BrokerService, request: Request, now: float, now_ms: int) -> Outcome:
        outcome = handle(self, request, now, now_ms)
        is_refused = isinstance(request, SendBack) and isinstance(outcome, Now)
        return Now(SentBack(request.attempts_max, 0)) if is_refused else outcome  # type: ignore[attr-defined]

    handle = BrokerService.handle
    patch.setattr(BrokerService, "handle", send_back)


def pass_what_was_not_given_back(patch: pytest.MonkeyPatch) -> None:
    async def hasty(self: Member, message: ReceivedMessage, *given: Any, **named: Any) -> SentBack:
        try:
            return await sound(self, message, *given, **named)
        except PenstockError:
            return SentBack(message.attempts + 1, int(message.attempts < retries.ATTEMPTS_MAX - 1))

    sound = Member.send_back
    patch.setattr(Member, "send_back", hasty)


def commit_what_was_read_ahead(patch: pytest.MonkeyPatch) -> None:
    def wanted(self: Holdings[Any]) -> dict[Any, int]:
        return {one: one.offset for one in self.held.values() if one.offset > one.committed}

    patch.setattr(Holdings, "wanted", wanted)


def begin_at_the_first_message_after_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    of = Offsets.of
    patch.setattr(Offsets, "of", lambda self, group: dict.fromkeys(of(self, group), 0))


def take_an_unknown_outcome_for_a_failure(patch: pytest.MonkeyPatch) -> None:
    def fail_all(self: WireLink, error: PenstockError) -> None:
        self._left_id = 0
        sound(self, error)

    sound = WireLink._fail_all
    patch.setattr(WireLink, "_fail_all", fail_all)


def set_a_timer_anew_each_time_it_is_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Repeats, "position_of_fact", lambda self, topic, unique_id: NOWHERE)


def store_what_is_given_back_again_once_more(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Returns, "get", lambda self, group, queue, offset: None)


def know_what_was_given_back_in_memory_only(patch: pytest.MonkeyPatch) -> None:
    sound = Returns.restore
    patch.setattr(Returns, "restore", lambda self, snapshot: sound(self, None))


SLEEP, SELL, WORK = delays.Delays, halves.Halves, retries.Retries
PLANTS: list[tuple[str, Callable[[pytest.MonkeyPatch], None], Any, Sequence[str]]] = [
    ("B1", answer_for_delayed_messages_before_they_are_durable, SLEEP, ("power",)),
    ("B1", answer_for_a_cancel_before_it_is_durable, SLEEP, ("power",)),
    ("B1", answer_for_halves_before_they_are_durable, SELL, ("power",)),
    ("B1", answer_for_an_outcome_before_it_is_durable, SELL, ("power",)),
    ("B26", answer_for_a_retry_before_it_is_durable, WORK, ("power",)),
    ("timers", say_that_it_fired_in_another_append, SLEEP, ()),
    ("resent", set_a_timer_anew_each_time_it_is_asked_for, delays.Posts, ("kill", "cut")),
    ("B46", let_retention_take_what_sleeps, SLEEP, ()),
    ("B46", let_retention_take_halves, SELL, ()),
    ("B28", wait_for_the_end_of_the_minute, SLEEP, ()),
    ("B28", deliver_the_whole_minute, SLEEP, ()),
    ("B28", leave_the_last_that_woke_in_its_bucket, SLEEP, ()),
    ("B28", leave_out_the_minute_of_the_restart, SLEEP, ("kill",)),
    ("B28", believe_what_the_clock_says, SLEEP, ("jump",)),
    ("B28", cancel_in_memory_only, SLEEP, ()),
    ("B29", let_a_second_outcome_overwrite_the_first, SELL, ()),
    ("B29", agree_with_any_outcome, SELL, ()),
    ("B29", show_halves_at_once, SELL, ()),
    ("B30", count_checks_that_nobody_had, SELL, ()),
    ("B31", drop_halves_after_the_last_check, SELL, ()),
    ("B26", pass_what_was_not_given_back, WORK, ("full",)),
    ("B26", forget_how_often_it_was_tried, WORK, ()),
    ("B26", try_once_more_than_allowed, WORK, ()),
    ("resent", store_what_is_given_back_again_once_more, WORK, ("kill", "cut")),
    ("resent", know_what_was_given_back_in_memory_only, WORK, ("kill",)),
    ("B27", swallow_dead_letters, WORK, ("full",)),
    ("B22", commit_what_was_read_ahead, WORK, ("kill",)),
    ("B23", begin_at_the_first_message_after_a_rebalance, delays.Plain, ()),
    ("B48", take_an_unknown_outcome_for_a_failure, SLEEP, ("kill",)),
]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "plant", "workload", "kinds"), PLANTS, ids=lambda one: getattr(one, "__name__", one)
)
def test_a_planted_bug_is_caught(
    number: str, plant: Any, workload: Any, kinds: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    must_see(plant, lambda seed: run(seed, (workload,), kinds), CATCH_WITHIN)
