"""Tables of the native path: figures, verdicts and notes."""

from __future__ import annotations

import io

from rich.console import Console

from loadtest.cores import Cores
from loadtest.native import report
from loadtest.native.bench import Measured, Plan
from loadtest.native.orders import Outcome

PLAN = Plan()


def outcome(rate: float, **figures: float) -> Outcome:
    return Outcome(rate=rate, client_us=6.0, broker_us=2.0, client_busy=0.75, broker_busy=0.25, figures=figures)


def shown(plan: Plan = PLAN, **outcomes: dict[str, list[Outcome]]) -> str:
    made = Measured(plan, levels={"compiled": "fsynced"}, cores=Cores(server=1, generator=0, sync_us={0: 9.0}))
    made.outcomes = {name.replace("_", "-"): by for name, by in outcomes.items()}
    made.missing = {"rocketmq": "there is no Java"}
    console = Console(file=io.StringIO(), width=140)
    report.show(made, console)
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


def test_a_row_has_rates_costs_and_who_took_them() -> None:
    text = shown(send_many={"compiled": [outcome(1000), outcome(3000), outcome(2000)]})
    assert "compiled 2,000 1,000-3,000 6.00 2.00 75%, 25% 75%" in text
    assert "rate, to" not in text


def test_every_goal_says_whether_it_is_reached() -> None:
    text = shown(send_many={"penstock": [outcome(10)], "compiled": [outcome(10)]})
    assert "send-many client CPU per message at most 3.00 us 1.50 us 6.00 us no 6.00 us no" in text
    assert "send-many broker CPU per message at most 2.00 us 1.00 us 2.00 us yes 2.00 us yes" in text


def test_a_pipe_says_what_producer_and_consumer_took() -> None:
    text = shown(pipe={"compiled": [outcome(300_000, producer_us=4.0, consumer_us=2.0)]})
    assert "4.00, 2.00" in text
    assert "pipe rate at least 120,000 /s 250,000 /s - - 300,000 /s yes, aim too" in text


def test_rows_beside_rocketmq_have_a_ratio_and_its_goal() -> None:
    text = shown(peer_singles={"compiled cache": [outcome(250)], "compiled": [outcome(50)], "rocketmq": [outcome(100)]})
    assert "2.50x" in text
    assert "0.50x" in text
    assert "peer-singles rate at least 2.00x rocketmq 3.00x - - 2.50x yes" in text


def test_what_rocketmqs_client_consumed_has_a_column_and_its_goal() -> None:
    own, theirs = outcome(300, consumed_per_s=5000), outcome(100, consumed_per_s=4000)
    text = shown(front_singles={"compiled front": [own], "rocketmq": [theirs]})
    assert "3.00x 5,000" in text
    assert "front-singles messages consumed per second at least 1.00x rocketmq - - - 1.25x yes" in text


def test_a_server_that_is_missing_says_why_in_its_row() -> None:
    text = shown(peer_singles={"compiled cache": [outcome(250)]})
    assert "rocketmq missing" in text
    assert "rocketmq: there is no Java" in text
    assert "rocketmq missing" not in shown(Plan(scenarios=("send",)), send={"compiled": [outcome(10)]})


def test_a_failed_run_has_no_numbers_and_counts() -> None:
    text = shown(send={"compiled": [outcome(10), Outcome(error="message 7 came twice")]})
    assert "compiled failed" in text
    assert "compiled: message 7 came twice" in text
    made = Measured(Plan(), outcomes={"send": {"compiled": [outcome(10), Outcome(error="no")]}})
    assert report.failures(made) == 1


def test_the_notes_say_what_a_receipt_means_who_had_which_core_and_what_is_missing() -> None:
    text = shown()
    assert "What a receipt means here: compiled: fsynced." in text
    assert "servers had core 1, where a sync takes least, all clients core 0." in text
    assert "Clients are programs on asyncio" in text
    assert "Left out: rocketmq: there is no Java." in text
    assert "Only one core" in " ".join(report.notes(Measured(Plan())))
