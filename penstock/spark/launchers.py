"""Small shell programs that stand in for another and change its arguments; Spark starts them by their paths."""

from __future__ import annotations

import hashlib
import os
import shlex
from pathlib import Path
from typing import Final

_PYTHON: Final = """#!/bin/sh
# Starts Python for Spark. Of its workers' daemons it takes the one that prints nothing when Spark closes a worker.
for one do shift; [ "$one" = pyspark.daemon ] && one=penstock.spark.workers; set -- "$@" "$one"; done
exec {python} "$@"
"""


def write_python(python: str, cache: Path) -> Path:
    """Writes a program that starts ``python`` with our daemon of workers instead of pyspark's; returns its path."""
    launcher = cache / f"python-{hashlib.sha256(python.encode()).hexdigest()[:8]}"
    write_launcher(launcher, _PYTHON.format(python=shlex.quote(python)))
    return launcher


def write_launcher(launcher: Path, text: str) -> None:
    """Writes an executable file, unless it has this text already; who starts it meanwhile gets the old or the new."""
    if launcher.exists() and launcher.read_text() == text:
        return
    launcher.parent.mkdir(parents=True, exist_ok=True)
    fresh = launcher.with_name(f"{launcher.name}.{os.getpid()}")
    fresh.write_text(text)
    fresh.chmod(0o755)
    fresh.replace(launcher)
