"""The commands of the jobs: their flags, and what is told before Spark starts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

import penstock.spark
from penstock.blocking import Producer
from penstock.errors import InvalidConfig
from penstock.telemetry import command, job_commands
from penstock.telemetry.catalog import JOBS, job_of
from penstock.telemetry.progress import Progress
from penstock.telemetry.running import RunOptions


class NoSpark:
    stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, RunOptions]]:
    """Which jobs were started, and how; Spark itself is not."""
    seen: list[tuple[str, RunOptions]] = []

    def run(job: Any, options: RunOptions, *_: object) -> Progress:
        seen.append((job.name, options))
        return Progress()

    monkeypatch.setattr(penstock.spark, "session", lambda **_: NoSpark())
    monkeypatch.setattr(job_commands, "run", run)
    return seen


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(command.program, ["run", *arguments])


def test_flags_become_the_jobs_options(started: list[tuple[str, RunOptions]], real_cluster: Any) -> None:
    with Producer(servers=real_cluster.servers) as producer:
        producer.send("a", b"1")
    flags = ["--server", real_cluster.servers, "--topic", "a", "--rule", "t > 1", "--rule", "* zscore 3", "--once"]
    result = invoke("alerts", *flags, "--out", "/x", "--out", "mqtt:warn/{device}", "--accept-data-loss")
    assert result.exit_code == 0, result.output
    ((name, options),) = started
    assert (name, options.servers, options.topic, options.once) == ("alerts", real_cluster.servers, "a", True)
    assert options.given == {"rule": ("t > 1", "* zscore 3")}
    assert options.out == ("/x", "mqtt:warn/{device}")
    assert not options.fail_on_data_loss


def test_lengths_of_time_are_read(started: list[tuple[str, RunOptions]]) -> None:
    assert invoke("sessions", "--server", "h:1", "--pause", "2m").exit_code == 0
    assert started[0][1].given == {"pause": "2 minutes", "watermark": "30 seconds"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("gasp",), "error: there is no job 'gasp'\n       did you mean gaps?\n"),
        (("sessions", "--pause", "soon"), "error: 'soon' is no length of time\n"),
        (("alerts",), "error: no rule is given\n"),
        (("devices",), "error: no registry of devices is given\n"),
        (("gaps", "--out", "topic:"), "error: 'topic:' names no place\n"),
        (("gaps", "--out", "topic:telemetry"), "error: topic:telemetry: the job reads this topic"),
        (("gaps", "--conf", "x"), "error: --conf 'x' is no setting\n"),
        (("gaps", "--package", "a:b_3.5_2.13:1"), "error: --package a:b_3.5_2.13:1 is for Spark 3.5, and pyspark"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_before_spark_starts(
    started: list[tuple[str, RunOptions]], arguments: tuple[str, ...], told: str
) -> None:
    result = invoke(*arguments, "--server", "127.0.0.1:1") if len(arguments) > 1 else invoke(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(told)
    assert started == []


def test_without_spark_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(**_: object) -> None:
        raise InvalidConfig("Spark is not installed: No module named 'pyspark'", hint="`pip install 'penstock[spark]'`")

    monkeypatch.setattr(penstock.spark, "session", missing)
    result = invoke("gaps", "--server", "127.0.0.1:1")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-2] == "error: Spark is not installed: No module named 'pyspark'"


def test_the_list_names_every_job() -> None:
    result = CliRunner().invoke(command.telemetry, ["list", "--json"])
    names = [json.loads(line)["name"] for line in result.stdout.splitlines()]
    assert names == ["windows", *[job.name for job in JOBS]]
    for name in names:
        assert invoke(name, "--help").exit_code == 0


def test_a_batch_is_a_table_or_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"device": "d1", "metric": "t", "event_time": "2026-01-02T03:04:05Z", "value": 1.23456, "readings": 3}
    batch = {"batch": 3, "rows": [row], "count": 1}
    job_commands.printer(job_of("last"), as_json=True)(batch)
    assert json.loads(capsys.readouterr().out) == batch
    job_commands.printer(job_of("last"), as_json=False)(batch)
    first, head, line = capsys.readouterr().out.splitlines()
    assert first == "batch 3: 1 rows"
    assert head.split() == ["device", "metric", "event", "time", "value", "readings"]
    assert line.split() == ["d1", "t", "2026-01-02T03:04:05Z", "1.235", "3"]
    job_commands.printer(job_of("last"), as_json=False)({"batch": 4, "rows": [], "count": 1200})
    assert capsys.readouterr().out == "batch 4: 1,200 rows kept\n"


def test_a_run_without_rows_says_why() -> None:
    assert job_commands.without_rows(job_of("gaps")) == "no rows"
    assert "when the watermark has passed its end" in job_commands.without_rows(job_of("sessions"))


def test_late_readings_are_told_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    done = Progress()
    job_commands.summary(done)
    assert capsys.readouterr().err == ""
    done.late = 4
    job_commands.summary(done)
    assert capsys.readouterr().err.startswith("4 came later")
