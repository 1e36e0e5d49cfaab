from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock.spark
from penstock.errors import InvalidConfig
from penstock.spark.session import cache_folder, prepare, session, shadow_home, submitted
from tests.patience import PATIENCE_S


def test_the_package_gives_the_function_and_not_the_module() -> None:
    assert callable(penstock.spark.session)


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(InvalidConfig, match=r"penstock\[spark\]"):
        session()


def test_the_shadow_home_has_spark_but_not_its_python_archive(tmp_path: Path) -> None:
    home = shadow_home(tmp_path)
    assert (home / "bin" / "spark-submit").exists()
    assert (home / "jars").is_dir()
    assert not (home / "python").exists()
    assert shadow_home(tmp_path) == home


def test_workers_get_this_python_and_what_a_person_set_stays(tmp_path: Path) -> None:
    java = tmp_path / "jvm" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'version \"21\"' >&2\n")
    java.chmod(0o755)
    environ = {"JAVA_HOME": str(tmp_path / "jvm"), "PATH": "", "SPARK_HOME": "/opt/spark"}
    prepare(environ, tmp_path)
    assert f"exec {sys.executable} " in Path(environ["PYSPARK_PYTHON"]).read_text()
    assert environ["PYSPARK_DRIVER_PYTHON"] == environ["PYSPARK_PYTHON"]
    assert environ["SPARK_HOME"] == "/opt/spark"
    environ["PYSPARK_PYTHON"] = "/mine"
    prepare(environ, tmp_path)
    assert environ["PYSPARK_PYTHON"] == "/mine"


def test_a_java_that_says_it_is_right_and_does_not_start_is_one_sentence(tmp_path: Path) -> None:
    java = tmp_path / "jvm" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\n[ "$1" = -version ] || exit 1\necho \'version "17"\' >&2\n')
    java.chmod(0o755)
    environ = os.environ | {"JAVA_HOME": str(tmp_path / "jvm"), "XDG_CACHE_HOME": str(tmp_path)}
    environ = {name: value for name, value in environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    program = "from penstock.spark import session; session()"
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith(f"penstock.errors.InvalidConfig: Java at {tmp_path / 'jvm'} does not start Spark"), (
        ran.stderr
    )


def test_workers_elsewhere_get_the_path_of_this_python(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    prepare(environ, tmp_path, here=False)
    assert environ["PYSPARK_PYTHON"] == sys.executable
    assert "SPARK_HOME" not in environ


def test_the_cache_is_a_fresh_folder_where_the_usual_one_cannot_be_written(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "penstock"
    (tmp_path / "file").touch()
    elsewhere = cache_folder({"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert elsewhere.is_dir()
    elsewhere.rmdir()


def test_spark_submit_is_known_by_the_gateway_that_runs_already() -> None:
    assert submitted({"PYSPARK_GATEWAY_PORT": "4711"})
    assert not submitted({})
