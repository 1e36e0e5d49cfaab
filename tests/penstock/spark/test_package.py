from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from penstock.errors import InvalidConfig
from penstock.spark.package import DRIVER, write_package
from tests.patience import PATIENCE_S

# What a driver runs, out of the archive alone; what it loads beside the standard library comes from somewhere else.
LOAD = """
import sys
before = set(sys.modules)
sys.path.insert(0, sys.argv[1])
import penstock.spark.shipping, penstock.spark.source, penstock.telemetry.command, penstock.telemetry.job
assert penstock.__file__.startswith(sys.argv[1]), penstock.__file__
found = {one.partition(".")[0] for one in set(sys.modules) - before if "." not in one}
files = {name: getattr(sys.modules[name], "__file__", None) or "" for name in found}
print(*sorted(name for name, file in files.items() if "site-packages" in file))
"""
BY_ITSELF = {"py4j", "pyspark"}  # Spark brings them
MODULES = {"mypy-extensions": "mypy_extensions"}


def test_a_driver_runs_out_of_the_archive_with_the_packages_that_are_named(tmp_path: Path) -> None:
    archive = tmp_path / "penstock.zip"
    count = write_package(archive)
    ran = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", LOAD, str(archive)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": ""},
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stderr
    needed = {MODULES.get(name, name) for name in DRIVER}
    # A wheel may bring a module that it alone needs, whose name begins with an underscore.
    assert {name for name in ran.stdout.split() if not name.startswith("_")} - BY_ITSELF == needed
    names = zipfile.ZipFile(archive).namelist()
    assert len(names) == count
    assert {name.partition("/")[0] for name in names} == {"penstock", "topicmap"}
    assert all(name.endswith(".py") for name in names)


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    write_package(first)
    write_package(second)
    assert first.read_bytes() == second.read_bytes()


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"no/p\.zip cannot be written: No such file"):
        write_package(tmp_path / "no" / "p.zip")
