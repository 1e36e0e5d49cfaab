"""When rounds begin and what they end with."""

from __future__ import annotations

from gateway.net.rounds import Rounds, Stage
from penstock.world import RealClock


class Countdown(Stage):
    """A stage that has so much to do."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.flushed = 0

    def flush(self) -> bool:
        self.flushed += 1
        self.turns -= 1
        return self.turns > 0


def rounds_with(*stages: Countdown) -> tuple[Rounds, list[str]]:
    calls: list[str] = []
    rounds = Rounds(RealClock(), lambda: calls.append("called"))
    rounds.ends_with(*stages)
    return rounds, calls


def test_many_wakes_between_rounds_are_one_call() -> None:
    rounds, calls = rounds_with(Countdown(1))
    rounds.wake()
    rounds.wake()
    assert calls == ["called"]


def test_a_wake_within_a_round_is_served_by_that_round() -> None:
    stage = Countdown(1)
    rounds, calls = rounds_with(stage)
    rounds.begin()
    rounds.wake()
    rounds.finish()
    assert calls == []
    assert stage.flushed == 1


def test_work_for_the_next_round_makes_no_turn_of_this_one_but_calls_for_the_next() -> None:
    stage = Countdown(1)
    rounds, calls = rounds_with(stage)
    rounds.begin()
    first = rounds.number
    rounds.again()
    rounds.finish()
    assert (stage.flushed, calls) == (1, ["called"])
    rounds.begin()
    rounds.finish()
    assert (rounds.number, calls) == (first + 1, ["called"])
    rounds.again()
    assert calls == ["called", "called"]


def test_what_there_is_to_say_is_sent_at_a_rounds_end_alone() -> None:
    class Sending(Countdown):
        def flush(self) -> bool:
            rounds.send()
            return super().flush()

    output = Countdown(1)
    rounds, _ = rounds_with(Sending(2))
    rounds.sent_by(output)
    rounds.send()
    rounds.begin()
    rounds.send()
    assert output.flushed == 0
    rounds.finish()
    assert output.flushed == 2
    rounds.send()
    assert output.flushed == 2


def test_a_round_goes_on_while_a_stage_has_more_to_do() -> None:
    stage = Countdown(3)
    rounds, calls = rounds_with(stage)
    rounds.begin()
    rounds.finish()
    assert stage.flushed == 3
    assert calls == []


def test_a_round_ends_some_time_and_calls_for_the_next() -> None:
    stage = Countdown(1000)
    rounds, calls = rounds_with(stage)
    rounds.begin()
    rounds.finish()
    assert stage.flushed < 1000
    assert calls == ["called"]


def test_work_for_the_last_stage_alone_makes_no_further_turn_but_calls_for_a_round_from_outside_of_one() -> None:
    class Asking(Countdown):
        def flush(self) -> bool:
            rounds.wake_last()
            return super().flush()

    asking, last = Asking(1), Countdown(1)
    rounds, calls = rounds_with(asking, last)
    rounds.begin()
    rounds.finish()
    assert (asking.flushed, last.flushed, calls) == (1, 1, [])
    rounds.wake_last()
    assert calls == ["called"]
