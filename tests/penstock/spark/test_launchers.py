from __future__ import annotations

import subprocess
from pathlib import Path

from penstock.spark.launchers import write_launcher, write_python


def test_a_launcher_can_be_run_and_is_written_anew_only_where_its_text_changes(tmp_path: Path) -> None:
    launcher = tmp_path / "bin" / "java"
    write_launcher(launcher, "#!/bin/sh\necho old\n")
    first = launcher.stat().st_ino
    write_launcher(launcher, "#!/bin/sh\necho old\n")
    assert launcher.stat().st_ino == first
    write_launcher(launcher, "#!/bin/sh\necho new\n")
    assert subprocess.run([str(launcher)], capture_output=True, text=True, check=True).stdout == "new\n"
    assert list(launcher.parent.iterdir()) == [launcher]


def test_the_python_for_spark_has_our_daemon_and_keeps_all_other_arguments(tmp_path: Path) -> None:
    echo = tmp_path / "it's python"
    echo.write_text('#!/bin/sh\nfor one do printf "<%s>" "$one"; done\n')
    echo.chmod(0o755)
    launcher = write_python(str(echo), tmp_path / "cache")
    arguments = ["-m", "pyspark.daemon", "pyspark.worker", "a b", "", "$HOME"]
    said = subprocess.run([str(launcher), *arguments], capture_output=True, text=True, check=True)
    assert said.stdout == "<-m><penstock.spark.workers><pyspark.worker><a b><><$HOME>"


def test_each_python_has_a_launcher_of_its_own(tmp_path: Path) -> None:
    assert write_python("/one/python", tmp_path) != write_python("/other/python", tmp_path)
