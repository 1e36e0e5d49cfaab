"""Tables and ratios: medians of paired rounds, failures without numbers, and the notes."""

from __future__ import annotations

import io

from rich.console import Console

from loadtest import report
from loadtest.bench import Measured, Plan, rows
from loadtest.generator import Outcome
from loadtest.scenarios import SCENARIOS

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def runs(*rates: float, busy: float = 0.5) -> list[Outcome]:
    return [Outcome(messages=1, rate=rate, p50_us=1e6 / rate, cpu_us=2.0, generator_busy=busy) for rate in rates]


def measured(**outcomes: dict[str, list[Outcome]]) -> Measured:
    made = Measured(Plan(), levels={"penstock": "fsynced", "mosquitto": "in memory"}, cores=2)
    made.outcomes = {name.replace("_", "-"): by for name, by in outcomes.items()}
    return made


def shown(made: Measured) -> str:
    console = Console(file=io.StringIO(), width=120)
    report.show(made, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_rates_are_medians_and_ratios_are_of_the_same_round() -> None:
    made = measured(publish={"penstock": runs(100, 400, 300), "mosquitto": runs(100, 100, 300)})
    first, second = rows(made, BY_NAME["publish"], ["mosquitto"])
    assert (first.server, first.rate, first.ratios) == ("penstock", 300, (("mosquitto", 1.0),))
    assert (second.server, second.rate, second.ratios) == ("mosquitto", 100, ())


def test_a_round_trip_compares_times_and_idle_connections_compare_bytes() -> None:
    made = measured(
        round_trip={"penstock": runs(100), "mosquitto": runs(200)},
        idle={"penstock": [Outcome(idle_bytes=3000)], "mosquitto": [Outcome(idle_bytes=1000)]},
    )
    assert rows(made, BY_NAME["round-trip"], ["mosquitto"])[0].ratios == (("mosquitto", 2.0),)
    assert rows(made, BY_NAME["idle"], ["mosquitto"])[0].ratios == (("mosquitto", 3.0),)


def test_one_failed_run_takes_all_numbers_away_and_no_ratio_is_made_with_it() -> None:
    lost = Outcome(error="3 messages were not delivered")
    made = measured(publish={"penstock": runs(100, 100), "mosquitto": [*runs(100), lost]})
    first, second = rows(made, BY_NAME["publish"], ["mosquitto"])
    assert (first.rate, first.ratios) == (100, ())
    assert (second.error, second.rate) == ("3 messages were not delivered", 0.0)
    assert "failed: 3 messages were not delivered" in " ".join(shown(made).split())
    assert report.failures(made) == 1


def test_the_notes_say_what_an_acknowledgement_means() -> None:
    text = shown(measured(publish={"penstock": runs(100)}))
    assert "penstock: fsynced; mosquitto: in memory" in text
    assert ">" not in text


def test_a_rate_that_the_generator_may_have_bounded_is_marked() -> None:
    text = shown(measured(publish={"penstock": runs(1000, busy=0.95)}))
    assert "> 1,000" in text
    assert "the server may do better" in text


def test_servers_that_are_left_out_are_named() -> None:
    made = measured()
    made.missing = ["mosquitto is not installed"]
    assert "Left out: mosquitto is not installed." in shown(made)
