"""What the doctor finds on a machine that is fit, and on one that is not."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from broker.settings import BrokerSettings
from broker.store.disk import RealDisk
from node import settings
from node.doctor import BAD, GOOD, NOTE, Finding, folder, is_held, java, machine, ports, times
from penstock.clock import RealClock

CLOCK = RealClock()


def found(findings: list[Finding], check: str) -> Finding:
    (one,) = [finding for finding in findings if finding.check == check]
    return one


def test_few_open_files_and_little_memory_are_bad_and_say_what_to_do() -> None:
    assert [one.verdict for one in machine(65_536, 8 << 30, 2)] == [GOOD, GOOD]
    assert [one.verdict for one in machine(65_536, 0, 2)] == [GOOD, GOOD]
    files, memory = machine(1024, 256 << 20, 2)
    assert (files.verdict, memory.verdict) == (BAD, BAD)
    assert "LimitNOFILE" in files.remedy


def test_a_folder_that_a_start_would_make_is_good_and_is_not_made(tmp_path: Path) -> None:
    findings = list(folder(tmp_path / "new" / "data", BrokerSettings(), CLOCK))
    assert found(findings, "data folder").found.endswith("a start makes it")
    assert found(findings, "sync").verdict in (GOOD, NOTE)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_bad(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    (one,) = folder(tmp_path / "data", BrokerSettings(), CLOCK)
    assert (one.verdict, one.check) == (BAD, "data folder")


def test_a_folder_of_a_newer_format_is_bad_in_the_words_of_the_start(tmp_path: Path) -> None:
    from broker.store import label

    (tmp_path / "log").mkdir()
    (tmp_path / label.PATH).write_bytes(label.encode(label.Label(label.FORMAT + 1, 0)))
    (one,) = folder(tmp_path, BrokerSettings(), CLOCK)
    assert one.verdict == BAD
    assert f"format {label.FORMAT + 1}" in one.found


def test_a_disk_that_holds_less_than_retention_keeps_is_told(tmp_path: Path) -> None:
    kept = found(list(folder(tmp_path, BrokerSettings(retention_bytes=1 << 60), CLOCK)), "disk")
    assert kept.verdict == NOTE
    small = found(list(folder(tmp_path, BrokerSettings(segment_bytes=1 << 60), CLOCK)), "disk")
    assert small.verdict == BAD


def test_a_held_folder_is_known_and_stays_held(tmp_path: Path) -> None:
    assert not is_held(tmp_path)
    disk = RealDisk(tmp_path)
    disk.lock("log")
    assert is_held(tmp_path)
    assert found(list(folder(tmp_path, BrokerSettings(), CLOCK)), "data folder").found.endswith("a broker holds it")
    disk.unlock()
    assert not is_held(tmp_path)


@pytest.mark.parametrize(("ahead_ms", "verdict"), [(0, GOOD), (3_600_000, BAD)])
def test_a_clock_behind_what_the_broker_believed_is_bad(ahead_ms: int, verdict: str, tmp_path: Path) -> None:
    believed = {"boot": "b", "steady_s": 1.0, "wall_ms": CLOCK.wall_ms() + ahead_ms, "age_ms": 0.0, "timer_ms": 0.0}
    (tmp_path / "clock").write_text(json.dumps(believed))
    (one,) = times(tmp_path, CLOCK)
    assert one.verdict == verdict


def test_a_taken_port_is_bad_unless_a_broker_runs_here(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = dict.fromkeys(("http_port", "namesrv_port", "broker_port"), 0)
        given = {"data": tmp_path, "mqtt_port": taken.getsockname()[1], **free}
        configuration = settings.load(None, {}, given)
        assert found(list(ports(configuration, {}, is_running=False)), "port of gateway").verdict == BAD
        assert {one.verdict for one in ports(configuration, {}, is_running=True)} == {GOOD}


def test_a_java_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.1\"' >&2\n")
    old.chmod(0o755)
    one = java({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})
    assert one.check == "Spark"
    assert one.verdict in (GOOD, BAD)
    assert "Java" in one.found
