from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

import penstock.spark
from penstock.blocking import Producer
from penstock.cli.root import STATUS_NOT_FOUND, root
from penstock.errors import OffsetOutOfRange
from penstock.telemetry import command, job
from penstock.telemetry.job import JobOptions

BATCH: dict[str, Any] = {
    "batch": 3,
    "refused": 2,
    "rows": [
        {
            "window_start": "2026-01-02T03:04:10Z",
            "window_end": "2026-01-02T03:04:20Z",
            "device": "dev-1",
            "metric": "temp",
            "count": 1200,
            "mean": 21.23456,
            "min": 20.0,
            "max": 22.0,
            "refused": 2,
        }
    ],
}


def test_a_batch_is_printed_as_a_table_that_lines_up(capsys: pytest.CaptureFixture[str]) -> None:
    command.printer(as_json=False)(BATCH)
    first, head, line = capsys.readouterr().out.splitlines()
    assert first == "batch 3: 1 windows changed, 2 payloads refused"
    assert head.split() == ["window", "start", "device", "metric", "count", "mean", "min", "max", "refused"]
    assert line.split() == ["2026-01-02T03:04:10Z", "dev-1", "temp", "1,200", "21.235", "20.0", "22.0", "2"]
    assert head.index("device") == line.index("dev-1")


def test_with_json_a_batch_is_one_line_with_everything(capsys: pytest.CaptureFixture[str]) -> None:
    command.printer(as_json=True)(BATCH)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == BATCH


class NoSpark:
    stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[JobOptions]:
    """What the job was started with; Spark itself is not."""
    seen: list[JobOptions] = []
    monkeypatch.setattr(penstock.spark, "session", lambda **_: NoSpark())
    monkeypatch.setattr(job, "run", lambda options, spark, on_batch: seen.append(options))
    return seen


def test_the_flags_become_the_jobs_options(started: list[JobOptions], real_cluster: Any) -> None:
    with Producer(servers=real_cluster.servers) as producer:
        producer.send("a", b"1")
    arguments = ["run", "--server", real_cluster.servers, "--topic", "a,b", "--window", "1m", "--available-now"]
    result = CliRunner().invoke(command.program, [*arguments, "--accept-data-loss", "--starting-offsets", "latest"])
    assert result.exit_code == 0, result.output
    (options,) = started
    assert (options.servers, options.topic, options.window) == (real_cluster.servers, "a,b", "1m")
    assert options.once
    assert not options.fail_on_data_loss
    assert options.starting_offsets == "latest"


def test_without_a_server_of_its_own_it_takes_the_commands(started: list[JobOptions]) -> None:
    root.add_command(command.telemetry)
    result = CliRunner().invoke(root, ["--server", "h:9", "telemetry", "run"])
    assert result.exit_code == 0, result.output
    assert started[0].servers == "h:9"


def test_a_job_that_fails_ends_with_one_error_and_spark_ends_too(
    started: list[JobOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = NoSpark()

    def fail(*_: object) -> None:
        raise OffsetOutOfRange("queue 0 begins at 6 now")

    monkeypatch.setattr(penstock.spark, "session", lambda **_: spark)
    monkeypatch.setattr(job, "run", fail)
    result = CliRunner().invoke(command.program, ["run", "--server", "127.0.0.1:1"])
    assert result.exit_code == STATUS_NOT_FOUND  # what was to be read is gone
    assert "error: queue 0 begins at 6 now" in result.stderr.splitlines()
    assert spark.stopped


def test_the_help_loads_neither_spark_nor_arrow() -> None:
    program = "import sys, penstock.telemetry.command; print([m for m in ('pyspark', 'pyarrow') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


def test_topics_that_are_not_there_are_said_before_spark_starts(started: list[JobOptions], real_cluster: Any) -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(command.program, ["run", "--server", real_cluster.servers, *arguments])

    result = run("--topic", "nix", "--once")
    assert (result.exit_code, started) == (3, [])
    assert result.stderr.startswith("error: there is no topic nix\n")
    result = run("--topic", "nix,nox")
    assert (result.exit_code, result.stderr) == (0, "waiting for topic nix, nox\n")
    with Producer(servers=real_cluster.servers) as producer:
        producer.send("some", b"1")
    result = run("--topic", "some, nix", "--once")
    assert (result.exit_code, result.stderr) == (0, "there is no topic nix\n")
    result = run("--topic", "some", "--once")
    assert (result.exit_code, result.stderr, len(started)) == (0, "", 3)


def test_a_wrong_name_server_ends_a_job_that_ends_at_once_and_is_said_by_one_that_goes_on(
    started: list[JobOptions],
) -> None:
    ends, goes_on = (
        CliRunner().invoke(command.program, ["run", "--server", "127.0.0.1:1", *flags]) for flags in (["--once"], [])
    )
    assert (ends.exit_code, len(started)) == (1, 1)
    assert ends.stderr.startswith("error: ")
    assert "127.0.0.1:1" in ends.stderr
    assert (goes_on.exit_code, "127.0.0.1:1" in goes_on.stderr) == (0, True)
    assert goes_on.stderr.startswith("waiting: ")
