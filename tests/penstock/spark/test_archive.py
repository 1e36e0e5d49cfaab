"""Which options Java gets for its archive of classes; a stand-in for Java writes what it is told to write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.spark.archive import archive_options
from penstock.world import RealClock

DUMP = 'for one in "$@"; do case $one in -XX:SharedArchiveFile=*) echo base > "${one#*=}" ;; esac; done'


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "jars").mkdir(parents=True)
    return tmp_path / "home"


def a_java(folder: Path, *, has_base: bool = True, script: str = "exit 1") -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    (folder / "release").write_text(folder.name)
    if has_base:
        (folder / "lib" / "server").mkdir(parents=True)
        (folder / "lib" / "server" / "classes.jsa").touch()
    return java


def archive_of(options: list[str]) -> Path:
    return Path(options[-1].partition("=")[2].rpartition(":")[2])


def test_the_first_session_writes_the_archive_others_meanwhile_do_without_and_later_ones_use_it(
    tmp_path: Path, spark_home: Path
) -> None:
    java = a_java(tmp_path / "jvm")
    assert archive_options(java, spark_home, tmp_path, make=False) == []
    first = archive_options(java, spark_home, tmp_path)
    assert first[-1].startswith("-XX:ArchiveClassesAtExit=")
    assert archive_options(java, spark_home, tmp_path) == []
    archive_of(first).touch()
    assert archive_options(java, spark_home, tmp_path, make=False) == [
        "-Xlog:disable",
        f"-XX:SharedArchiveFile={archive_of(first)}",
    ]


def test_a_session_that_never_wrote_its_archive_leaves_it_to_a_later_one(tmp_path: Path, spark_home: Path) -> None:
    java = a_java(tmp_path / "jvm")
    first = archive_options(java, spark_home, tmp_path)
    mark = archive_of(first).with_suffix(".making")
    past = RealClock().wall_ms() / 1000 - 3600
    os.utime(mark, (past, past))
    assert archive_options(java, spark_home, tmp_path) == first


def test_another_java_or_other_jars_have_another_archive(tmp_path: Path, spark_home: Path) -> None:
    (tmp_path / "other" / "jars").mkdir(parents=True)
    one, two = a_java(tmp_path / "one"), a_java(tmp_path / "two")
    places = [(one, spark_home), (two, spark_home), (one, tmp_path / "other")]
    assert len({archive_of(archive_options(java, home, tmp_path)) for java, home in places}) == 3


def test_a_java_without_an_archive_of_its_own_classes_gets_one(tmp_path: Path, spark_home: Path) -> None:
    java = a_java(tmp_path / "jvm", has_base=False, script=DUMP)
    options = archive_options(java, spark_home, tmp_path)
    base = Path(options[1].removeprefix("-XX:SharedArchiveFile="))
    assert base.read_text() == "base\n"
    archive_of(options).touch()
    assert archive_options(java, spark_home, tmp_path)[-1] == f"-XX:SharedArchiveFile={base}:{archive_of(options)}"


def test_where_java_can_write_none_sessions_start_without(tmp_path: Path, spark_home: Path) -> None:
    assert archive_options(a_java(tmp_path / "jvm", has_base=False), spark_home, tmp_path) == []
    assert archive_options(a_java(tmp_path / "two"), spark_home, tmp_path / "nowhere") == []


def test_old_archives_go_when_a_new_one_is_made(tmp_path: Path, spark_home: Path) -> None:
    for age in range(9):
        old = tmp_path / f"classes-{age}.jsa"
        old.touch()
        os.utime(old, (1000 - age, 1000 - age))
    archive_options(a_java(tmp_path / "jvm"), spark_home, tmp_path)
    assert sorted(one.name for one in tmp_path.glob("*.jsa")) == [f"classes-{age}.jsa" for age in range(4)]
