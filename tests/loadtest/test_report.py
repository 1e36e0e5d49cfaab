"""Tables and ratios: medians of paired rounds, failures without numbers, and the notes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from loadtest import report
from loadtest.bench import Measured, Plan, rows
from loadtest.cores import Cores
from loadtest.generator import Outcome
from loadtest.scenarios import SCENARIOS

CORES = Cores(server=1, generator=0, sync_us={0: 151.2, 1: 113.4})
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def runs(*rates: float, busy: float = 0.5) -> list[Outcome]:
    return [Outcome(messages=1, rate=rate, p50_us=1e6 / rate, cpu_us=2.0, generator_busy=busy) for rate in rates]


def measured(**outcomes: dict[str, list[Outcome]]) -> Measured:
    made = Measured(Plan(), levels={"penstock": "fsynced", "mosquitto": "in memory"}, cores=CORES)
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


def test_each_start_of_the_servers_has_a_ratio_of_its_own() -> None:
    by_server = {"penstock": runs(90, 100, 300, 400), "mosquitto": runs(100, 100, 200, 100), "bare": runs(100)}
    made = measured(publish=by_server)
    made.plan = Plan(starts=2, rounds=2)
    own, mosquitto, bare = rows(made, BY_NAME["publish"], ["mosquitto"])
    assert (own.ratios, own.by_start) == ((("mosquitto", 1.25),), (0.95, 2.75))
    assert (mosquitto.by_start, bare.by_start) == ((), ())
    text = " ".join(shown(made).split())
    assert "0.95-2.75x" in text
    assert "1.25x: no" in text
    assert "2 start(s) of the servers with 2 round(s) of 1 s each" in text
    made.plan = Plan(starts=1, rounds=4)
    assert rows(made, BY_NAME["publish"], ["mosquitto"])[0].by_start == ()
    assert "by start" not in shown(made)


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
    assert "> 100" not in text


def test_the_notes_say_whether_the_generator_was_compiled() -> None:
    made = measured(publish={"penstock": runs(100)})
    assert "One generator for all servers, in plain Python, QoS 1" in " ".join(shown(made).split())
    made.is_generator_compiled = True
    assert "One generator for all servers, compiled, QoS 1" in " ".join(shown(made).split())


def test_the_notes_say_who_had_which_core_and_what_a_sync_takes_there() -> None:
    made = measured(publish={"penstock": runs(100)})
    text = " ".join(shown(made).split())
    assert "medians: 151 us on core 0, 113 us on core 1." in text
    assert "All servers had core 1, where a sync takes least, the generator core 0;" in text
    made.cores = Cores(sync_us={0: 100.0})
    assert "Only one core" in " ".join(shown(made).split())


def test_a_rate_that_the_generator_may_have_bounded_is_marked() -> None:
    text = shown(measured(publish={"penstock": runs(1000, busy=0.95)}))
    assert "> 1,000" in text
    assert "0%, 95%" in text


def test_a_rate_that_the_server_has_bounded_too_is_not_marked() -> None:
    busy = [Outcome(messages=1, rate=1000, cpu_us=990.0, generator_busy=0.95)]
    text = shown(measured(publish={"penstock": busy}))
    assert "99%, 95%" in text
    assert "> 1,000" not in text


def test_every_goal_says_whether_it_is_reached_and_could_be_and_nobody_else_is_judged() -> None:
    by_server = {"penstock": runs(400), "compiled": runs(200), "mosquitto": runs(100), "bare": runs(900)}
    made = measured(publish=by_server)
    first, second, third, bare = rows(made, BY_NAME["publish"], ["mosquitto"])
    assert [value for _, value in first.judged] == [4.0]
    assert [value for _, value in second.judged] == [2.0]
    assert third.judged == ()
    assert [value for _, value in bare.judged] == [9.0]
    assert [row.cpu_ratio for row in (first, second, third)] == [1.0, 1.0, 0.0]
    lines = [line.split() for line in shown(made).splitlines() if "at least 3.00x mosquitto" in line]
    assert lines[0] == ["goal:", "rate", "at", "least", "3.00x", "mosquitto,", "aim", "5.00x"]
    goal = ["publish", "rate", "at", "least", "3.00x", "mosquitto", "5.00x"]
    assert lines[1] == [*goal, "4.00x", "yes", "2.00x", "no", "9.00x"]


def test_a_goal_without_its_reference_is_not_judged() -> None:
    made = measured(publish={"penstock": runs(400)}, reconnect={"penstock": reconnects(2.5)})
    assert rows(made, BY_NAME["publish"], [])[0].judged == ()
    assert [value for _, value in rows(made, BY_NAME["reconnect"], [])[0].judged] == [2.5]


def reconnects(seconds: float) -> list[Outcome]:
    return [Outcome(messages=1, rate=100, cpu_us=2.0, figures={"reconnect_s": seconds, "server_cpu_s": 1.0})]


def test_every_kind_of_scenario_has_its_table() -> None:
    backlog = {"sessions_bytes": 1.0, "without_bytes": 3e6, "most_bytes": 7e6, "with_bytes": 6e6}
    filters = {"few_cpu_us": 2.0, "many_cpu_us": 3.0, "cost_ratio": 1.5, "few_rate": 8.0}
    made = measured(
        paced_acks={"penstock": [Outcome(rate=5000, p99_us=9000, figures={"late_p99_us": 999.0})]},
        backlog={"penstock": [Outcome(rate=9, figures={**backlog, "with_without": 2.0, "bytes_per_message": 3.0})]},
        filters={"penstock": [Outcome(rate=9, figures=filters)]},
        reconnect={"penstock": reconnects(2.5)},
    )
    text = shown(made)
    assert "9.00 ms: yes" in text
    assert "2.00x: no" in text
    assert "1.50x: no" in text
    assert "2.50 s: yes, aim too" in text
    assert "late by over 200 us for penstock" in text
    assert "backlog: 30% of the size" in text


def test_an_idle_herd_that_is_smaller_for_want_of_descriptors_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "sockets_within_limit", lambda count: min(count, 3096))
    text = " ".join(shown(measured()).split())
    assert "neighbour-idle: 3,096 sockets, not 10,000: a process may not open more files here (`ulimit -Hn`)." in text
    monkeypatch.setattr(report, "sockets_within_limit", lambda count: count)
    assert "ulimit" not in shown(measured())


def test_servers_that_are_left_out_are_named() -> None:
    made = measured()
    made.missing = ["mosquitto is not installed"]
    assert "Left out: mosquitto is not installed." in shown(made)
