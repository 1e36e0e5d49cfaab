"""What Maven is asked for, with a stand-in for Maven."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.maven import copy_jars, need_maven
from loadtest.servers import Missing


def test_the_dependencies_of_a_project_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "mvn"
    script.write_text('#!/bin/sh\necho "$@"; cat "$4"; exit 3\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    need_maven()
    folder = tmp_path / "new" / "build"
    done = copy_jars(folder, "<project/>", folder / "lib")
    asked = f"-q -B -f {folder}/pom.xml dependency:copy-dependencies -DoutputDirectory={folder}/lib"
    assert (done.returncode, done.stdout) == (3, f"{asked}\n<project/>")


def test_a_machine_without_maven_is_told_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match=r"no `mvn`.*apt-get install maven"):
        need_maven()
