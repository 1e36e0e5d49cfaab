"""Which seeds a simulation runs, and how each is run and checked.

``PENSTOCK_SEEDS=500`` runs more seeds, ``PENSTOCK_SEED=17`` that one alone.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import pytest

from tests.simulation.running import Run, Simulation, simulate


class Simulated(Protocol):
    """A world that runs by itself. ``log``: what happened, a line each."""

    log: list[str]

    def run(self) -> None: ...


W = TypeVar("W", bound=Simulated)
SEEN_BY = {
    "acknowledge_before_the_sync": 4,
    "answer_for_a_filter_before_its_record_is_durable": 5,
    "answer_for_a_retry_before_it_is_durable": 3,
    "answer_for_an_acknowledgement_before_it_is_durable": 2,
    "answer_for_an_outcome_before_it_is_durable": 2,
    "begin_work_after_the_session_has_ended": 2,
    "close_before_that_is_saved": 237,
    "commit_what_was_read_ahead": 3,
    "forget_the_time_over_a_restart": 10,
    "forget_to_wake_waiting_requests_and_their_deadlines": 10,
    "give_a_session_before_that_is_durable": 19,
    "know_what_was_given_back_in_memory_only": 9,
    "leave_filters_of_ended_sessions_to_whoever_ended_them": 2,
    "leave_what_is_on_its_way_in_the_queue_that_goes": 65,
    "let_go_while_a_handler_is_at_work": 1,
    "let_late_messages_of_earlier_owners_in": 123,
    "let_retention_take_halves": 1,
    "let_retention_take_what_sleeps": 2,
    "never_say_what_is_held": 4,
    "never_say_what_is_still_to_be_closed": 15,
    "pass_what_was_not_given_back": 1,
    "save_for_whoever_asks": 19,
    "send_qos_2_before_the_session_is_durable": 65,
    "serve_before_the_filters_are_open": 2,
    "set_a_timer_anew_each_time_it_is_asked_for": 2,
    "settle_what_nobody_has_heard_to_be_saved": 3,
    "store_what_an_epoch_that_is_over_has_left": 123,
    "store_what_is_given_back_again_once_more": 1,
    "swallow_dead_letters": 1,
    "take_a_failed_sync_for_a_good_one": 2,
    "take_a_refused_exchange_for_a_known_one": 3,
    "take_the_sync_point_after_the_sync": 57,
    "two_holders_of_an_ordered_queue_while_the_old_one_works": 1,
}
"""Who sees a rare bug soon. It may be another seed when the code has changed; the search then takes longer, no more.
``pytest -rP tests/simulation | grep "seen by"`` says which it is."""


def seeds(count: int) -> Sequence[int]:
    """So many, if nobody asks for others."""
    one = os.environ.get("PENSTOCK_SEED")
    return [int(one)] if one else range(int(os.environ.get("PENSTOCK_SEEDS", count)))


def checked(world: W, check: Callable[[W], None], seed: int, test: str) -> W:
    """Runs a world and checks it; a failure says how to run it again (``test``: file and filter), and what happened."""
    try:
        world.run()
        check(world)
    except BaseException as error:
        error.add_note("\n".join([_again(seed, test), *world.log[-60:]]))
        raise
    return world


def simulated(
    seed: int, scenario: Callable[[Simulation], Awaitable[Any]], check: Callable[[Any], object], test: str
) -> Run:
    """Simulates a scenario and checks its result; a failure says what ``checked`` says, with the whole log."""
    simulations: list[Simulation] = []

    def remembered(simulation: Simulation) -> Awaitable[Any]:
        simulations.append(simulation)
        return scenario(simulation)

    try:
        done = simulate(seed, remembered)
        check(done.result)
    except BaseException as error:
        error.add_note("\n".join([_again(seed, test), *simulations[0].log]))
        raise
    return done


def _again(seed: int, test: str) -> str:
    return f"again:  PENSTOCK_SEED={seed} .venv/bin/pytest tests/simulation/{test}"


def must_see(
    plant: Callable[..., object], run: Callable[[int], object], within: int, saying: type[Exception] = AssertionError
) -> None:
    """Fails unless one of so many seeds sees the bug that was planted; a seed that does raises ``saying``."""
    likely = SEEN_BY.get(plant.__name__, 0)
    for seed in (likely, *range(within)):
        try:
            run(seed)
        except saying:
            pass
        except ExceptionGroup as group:
            if group.split(saying)[1] is not None:
                raise  # not what a check says: the bench's own mistake
        else:
            continue
        print(f"seen by seed {seed}: {plant.__name__}")
        return
    pytest.fail(f"none of {within} seeds saw it; the first tried was {likely}")
