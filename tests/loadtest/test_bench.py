"""A whole benchmark, as short as can be, against a server that is always there."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest import __main__ as command
from loadtest import bench, generator, herd, servers
from loadtest.bench import Plan, measure
from loadtest.cores import Cores
from loadtest.goals import BARE, BARE_CACHE
from loadtest.scenarios import SCENARIOS
from loadtest.servers import Amqtt, Missing, Mosquitto, Penstock, Server, check_compiled

pytestmark = [pytest.mark.endtoend, pytest.mark.slow]


class Absent(Server):
    name = "absent"

    def command(self) -> list[str]:
        raise Missing("absent is not installed")


class Broken(Server):
    name = "broken"

    def command(self) -> list[str]:
        self.port = servers.free_port()
        return [sys.executable, "-c", "raise SystemExit('no luck')"]


class Second(Amqtt):
    name = "second"


def test_servers_run_in_turns_and_those_that_cannot_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SERVERS", (Amqtt, Second, Absent, Broken))
    told: list[str] = []
    chosen = ("amqtt", "second", "absent", "broken")
    plan = Plan(
        rounds=2, warm_s=0.05, measure_s=0.1, idle_connections=5, servers=chosen, scenarios=("one-to-one", "idle")
    )
    measured = measure(plan, told.append)
    ran = [line for line in told if "1 publisher to 1 subscriber" in line]
    assert ran == [
        f"round {at} of 2: 1 publisher to 1 subscriber, window 100: {name}"
        for at, name in [(1, "amqtt"), (1, "second"), (2, "second"), (2, "amqtt")]
    ]
    assert [run.error for run in measured.outcomes["one-to-one"]["amqtt"]] == ["", ""]
    assert all(run.checked >= run.messages > 0 for run in measured.outcomes["one-to-one"]["amqtt"])
    assert [run.checked for run in measured.outcomes["idle"]["amqtt"]] == [5]
    assert measured.missing[0] == "absent is not installed"
    assert "broken does not start: no luck" in measured.missing[1]
    assert measured.cores.sync_us.keys() <= os.sched_getaffinity(0)
    assert measured.cores.sync_us
    json.dumps(measured.as_json())


@pytest.mark.long
def test_all_servers_are_started_again_for_more_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SERVERS", (Amqtt, Second, Absent))
    told: list[str] = []
    plan = Plan(starts=2, rounds=1, warm_s=0.0, measure_s=0.05, idle_connections=5)
    plan = replace(plan, servers=("amqtt", "second", "absent"), scenarios=("one-to-one", "idle"))
    measured = measure(plan, told.append)
    turn = "1 publisher to 1 subscriber, window 100"
    assert [line for line in told if "starting" in line or turn in line] == [
        *("starting amqtt", "starting second", "starting absent"),
        *(f"round 1 of 2: {turn}: amqtt", f"round 1 of 2: {turn}: second"),
        *("starting amqtt", "starting second", "starting absent"),
        *(f"round 2 of 2: {turn}: second", f"round 2 of 2: {turn}: amqtt"),
    ]
    assert [run.error for runs in measured.outcomes["one-to-one"].values() for run in runs] == [""] * 4
    assert [len(runs) for runs in measured.outcomes["idle"].values()] == [1, 1]
    assert measured.missing == ["absent is not installed"]


def test_the_command_writes_every_run_to_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "QUICK", Plan(rounds=1, warm_s=0.0, measure_s=0.05))
    file = tmp_path / "runs.json"
    chosen = ["--servers", "amqtt", "--scenarios", "round-trip", "--json", str(file)]
    assert command.main(["bench", "--quick", *chosen]) == 0
    assert json.loads(file.read_text())["outcomes"]["round-trip"]["amqtt"][0]["error"] == ""
    assert "publish, 1 connection, 1 in flight" in capsys.readouterr().out


@pytest.mark.long
def test_sessions_backlog_and_filters_have_a_server_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SERVERS", (Penstock,))
    chosen = ("backlog", "reconnect", "filters")
    plan = Plan(warm_s=0.0, filters_s=0.4, is_full=True, share=0.001, scenarios=chosen)  # many ticks of 10 ms
    measured = measure(plan, lambda _: None)
    (backlog,), (reconnect,), (filters,) = [measured.outcomes[name]["penstock"] for name in chosen]
    assert [backlog.error, reconnect.error, filters.error] == ["", "", ""]
    assert (backlog.messages, backlog.checked, backlog.figures["with_bytes"] > 0) == (1000, 1000, True)
    assert (reconnect.messages, reconnect.checked) == (10, 10 * herd.TIMES)
    assert filters.checked > filters.messages > 0
    assert filters.figures["cost_ratio"] == filters.figures["many_cpu_us"] / filters.figures["few_cpu_us"]


@pytest.mark.long
def test_servers_are_measured_over_tls_and_websocket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SERVERS", (Penstock, Amqtt))
    plan = Plan(
        rounds=1, warm_s=0.0, measure_s=0.1, servers=("penstock", "amqtt"), scenarios=("tls-one-to-one", "ws-publish")
    )
    measured = measure(plan, lambda _: None)
    for runs in measured.outcomes.values():
        assert [(run.error, run.checked >= run.messages > 0) for run in runs["penstock"]] == [("", True)]
        assert "amqtt" not in runs
    assert any("over TLS" in one and "amqtt does not listen" in one for one in measured.missing)


def test_a_server_takes_part_where_it_is_of_use_or_where_it_is_named() -> None:
    paced = next(one for one in SCENARIOS if one.name == "paced-one-to-one")
    assert not Plan().takes("penstock", paced)
    assert Plan().takes("penstock cache", paced)
    assert Plan(servers=("penstock",)).takes("penstock", paced)
    assert not Plan(servers=("penstock",)).takes("mosquitto", paced)


def test_a_generator_that_hangs_is_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SERVERS", (Amqtt,))
    monkeypatch.setattr(bench, "SETUP_S", -generator.DRAIN_S - bench.MARGIN_S)
    measured = measure(Plan(rounds=1, warm_s=0.0, measure_s=0.01, scenarios=("publish",)), lambda _: None)
    assert "took longer than" in measured.outcomes["publish"]["amqtt"][0].error


def test_the_generator_is_started_where_it_is_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench, "COMPILED", tmp_path)
    assert bench.generator_tree() == Server.tree
    (tmp_path / "loadtest").mkdir()
    (tmp_path / "loadtest" / "generator.py").touch()
    assert bench.generator_tree() == Server.tree
    (tmp_path / "loadtest" / "generator.so").touch()
    assert bench.generator_tree() == tmp_path


def test_a_server_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(servers.shutil, "which", lambda *_, **__: None)
    with pytest.raises(Missing, match="apt-get install mosquitto"):
        Mosquitto(tmp_path, Cores()).start()


@pytest.mark.parametrize("level", [BARE, pytest.param(BARE_CACHE, marks=pytest.mark.long)])
def test_the_bare_server_acknowledges_and_passes_on_every_message(level: str) -> None:
    chosen = ("publish", "one-to-one", "fan-out")
    measured = measure(Plan(rounds=1, warm_s=0.0, measure_s=0.1, servers=(level,), scenarios=chosen), lambda _: None)
    runs = [run for name in chosen for run in measured.outcomes[name][level]]
    assert [run.error for run in runs] == ["", "", ""]
    assert all(run.checked >= run.messages > 0 for run in runs)


def test_a_tree_that_was_compiled_from_other_sources_is_left_out(tmp_path: Path) -> None:
    tree = tmp_path / "compiled"
    with pytest.raises(Missing, match="there are no compiled modules"):
        check_compiled(tree, tmp_path)
    for root in (tmp_path, tree):
        (root / "broker/store").mkdir(parents=True)
        (root / "broker/store/disk.py").write_text("one = 1\n")
    check_compiled(tree, tmp_path)
    (tmp_path / "broker/store/disk.py").write_text("one = 2\n")
    with pytest.raises(Missing, match=r"broker/store/disk\.py has changed"):
        check_compiled(tree, tmp_path)
    (tmp_path / "broker/store/disk.py").write_text("one = 1\n")
    (tmp_path / "broker/new.py").touch()
    with pytest.raises(Missing, match=r"broker/new\.py has changed"):
        check_compiled(tree, tmp_path)
