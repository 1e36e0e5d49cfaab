"""A whole benchmark of the native path, as short as can be, against our own server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest import __main__ as command
from loadtest.native import bench
from loadtest.native.bench import Measured, Plan, measure, rows
from loadtest.native.orders import Outcome
from loadtest.native.scenarios import SCENARIOS
from loadtest.servers import Missing, Penstock

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


class Absent(Penstock):
    name = "compiled"

    def command(self) -> list[str]:
        raise Missing("compiled is not there")


@pytest.mark.endtoend
@pytest.mark.slow
@pytest.mark.long
def test_every_load_of_ours_runs_in_turns_and_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SERVERS", (Penstock, Absent))
    told: list[str] = []
    names = ("send-many", "send", "consume", "consume-four", "pipe")
    measured = measure(Plan(rounds=1, warm_s=0.0, measure_s=0.4, share=0.01, scenarios=names), told.append)
    assert [line.partition(": ")[2] for line in told if "round" in line] == [
        f"{BY_NAME[name].title}: penstock" for name in names
    ]
    runs = {name: by["penstock"][0] for name, by in measured.outcomes.items()}
    assert {name: run.error for name, run in runs.items()} == dict.fromkeys(names, "")
    assert all(run.checked >= run.messages > 0 for run in runs.values())
    assert (runs["consume"].checked, runs["consume-four"].checked) == (1500, 1500)
    assert measured.missing == {"compiled": "compiled is not there"}
    json.dumps(measured.as_json())


@pytest.mark.endtoend
@pytest.mark.slow
def test_the_command_writes_every_run_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.json"
    chosen = ["--servers", "penstock", "--scenarios", "send", "--rounds", "1", "--seconds", "0.05"]
    assert command.main(["native", *chosen, "--json", str(file)]) == 0
    assert json.loads(file.read_text())["outcomes"]["send"]["penstock"][0]["error"] == ""
    assert "send one by one over 64 tasks" in capsys.readouterr().out


def test_a_server_takes_part_where_it_is_of_use_and_named() -> None:
    assert Plan().takes("penstock", BY_NAME["send"])
    assert not Plan(servers=("compiled",)).takes("penstock", BY_NAME["send"])
    assert not Plan(servers=("penstock cache",)).takes("penstock cache", BY_NAME["send"])


def runs(*rates: float) -> list[Outcome]:
    return [Outcome(messages=1, rate=rate, client_us=6.0, broker_us=2.0) for rate in rates]


def measured(**outcomes: dict[str, list[Outcome]]) -> Measured:
    return Measured(Plan(), outcomes={name.replace("_", "-"): by for name, by in outcomes.items()})


def test_figures_are_medians_and_ratios_are_of_the_same_round() -> None:
    by_server = {"compiled cache": runs(100, 900, 300), "compiled": runs(50, 50, 50), "rocketmq": runs(100, 300, 50)}
    own, disk, theirs = rows(measured(peer_singles=by_server), BY_NAME["peer-singles"])
    assert (own.rate, own.lowest, own.highest, own.ratio) == (300, 100, 900, 3.0)
    assert [(goal.figure, value) for goal, value in own.judged] == [("rate", 3.0)]
    assert (disk.ratio, disk.judged) == (0.5, ())
    assert (theirs.ratio, theirs.judged) == (0.0, ())
    assert own.client_share == 0.75


def test_one_failed_run_takes_all_numbers_away_and_no_ratio_is_made_with_it() -> None:
    by_server = {"compiled cache": runs(100, 100), "rocketmq": [*runs(100), Outcome(error="3 messages did not come")]}
    own, theirs = rows(measured(peer_singles=by_server), BY_NAME["peer-singles"])
    assert (own.rate, own.ratio, own.judged) == (100, 0.0, ())
    assert (theirs.error, theirs.rate) == ("3 messages did not come", 0.0)


def test_costs_are_judged_by_themselves() -> None:
    (row,) = rows(measured(send_many={"compiled": runs(100)}), BY_NAME["send-many"])
    assert [(goal.figure, value, goal.verdict(value)) for goal, value in row.judged] == [
        ("client_us", 6.0, "no"),
        ("broker_us", 2.0, "yes"),
    ]


def test_a_login_is_compared_with_the_same_server_without_one() -> None:
    scenario = BY_NAME["login-many"]
    outcomes = {"penstock": runs(100, 200), "penstock login": runs(98, 150), "compiled": runs(1, 1)}
    measured = Measured(Plan(), outcomes={scenario.name: outcomes})
    judged = {row.server: row.judged for row in rows(measured, scenario)}
    assert [round(value, 3) for _, value in judged["penstock login"]] == [0.865]
    assert judged["penstock"] == judged["compiled"] == ()
