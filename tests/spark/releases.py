"""Runs Spark's tests on other releases of pyspark, each in an environment of its own: ``make test-spark-versions``.

On a release that Penstock runs on, these are all tests of Spark, the long ones too. A release that Penstock refuses has
to say so in a sentence, at each door. One of these is the newest with jars of Iceberg, and writes a table.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock.spark.versions import is_tried

ROOT = Path(__file__).parents[2]
RELEASES = ("4.0", "4.1", "4.2")
TESTS = ("tests/spark", "tests/penstock/spark", "tests/penstock/telemetry", "tests/loadtest/spark")
ICEBERG = ("4.1", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
"""The newest of November 2026."""
DOORS = (
    ("-c", "from penstock.spark import session; session()"),
    ("-c", "from penstock.spark import register; register(object())"),
    ("-m", "penstock.telemetry", "last"),
)
SUMMARY = re.compile(r"^\d+ (?:passed|failed).* in .*$", re.MULTILINE)
ENVIRON = os.environ | {"PYTHONPATH": str(ROOT), "HATCH_BUILD_NO_HOOKS": "true"}


def made(release: str) -> Path:
    """The Python of a release's environment, in ``build``; another run uses it again."""
    folder = ROOT / "build" / f"pyspark-{release}"
    python = folder / "bin" / "python"
    wanted = (
        ["-e", ".[events,spark]", "--group", "test"] if is_tried(release) else ["-e", ".", "pyarrow>=18", "pandas<3"]
    )
    if not (folder / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--upgrade", "pip>=25.1"], check=True)
        subprocess.run([*pip, *wanted, f"pyspark=={release}.*"], check=True, cwd=ROOT, env=ENVIRON)
        (folder / "installed").touch()
    return python


def said(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(python), *arguments]
    return subprocess.run(command, cwd=ROOT, env=ENVIRON, capture_output=True, text=True, check=False)


def outcome_of_tests(python: Path) -> tuple[bool, str]:
    """Runs the tests, which show their failures."""
    ran = said(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS)
    if ran.returncode:
        print(ran.stdout, ran.stderr, flush=True)
    return ran.returncode == 0, (SUMMARY.findall(ran.stdout) or ["no summary"])[-1]


def outcome_of_refusal(python: Path, release: str) -> tuple[bool, str]:
    """Knocks at all doors."""
    told = re.compile(rf"pyspark {re.escape(release)}\.\d+ is installed, and Penstock runs on .*: .* before 4\.2")
    for door in DOORS:
        ran = said(python, *door)
        if ran.returncode == 0 or not told.search(ran.stderr):
            return False, f"{' '.join(door)}: {ran.stderr[-500:]}"
    is_right, more = True, ""
    if release == ICEBERG[0]:
        with tempfile.TemporaryDirectory() as folder:
            ran = said(python, str(Path(__file__).with_name("iceberg.py")), folder, ICEBERG[1])
        is_right, more = "['d1', 'd2']" in ran.stdout, ", and the output of Iceberg writes its table"
        more = more if is_right else f", and Iceberg: {ran.stderr[-500:]}"
    return is_right, f"refused in a sentence{more}"


def main(*releases: str) -> int:
    """The exit status: 1 where a release is not as it should be."""
    failed = False
    for release in releases or RELEASES:
        began, python = time.monotonic(), made(release)
        version = said(python, "-c", "import pyspark; print(pyspark.__version__)").stdout.strip()
        is_right, told = outcome_of_tests(python) if is_tried(release) else outcome_of_refusal(python, release)
        failed |= not is_right
        took_s = time.monotonic() - began
        print(f"pyspark {version}: {'' if is_right else 'FAILED: '}{told} ({took_s:.0f} s)", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
