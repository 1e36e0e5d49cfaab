"""Jars from Maven Central for the peers of our benchmarks, copied into a folder that git ignores."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from loadtest.servers import Missing

FETCH_S: Final = 400.0


def need_maven() -> None:
    """Raises ``Missing`` where Maven is not installed."""
    if shutil.which("mvn") is None:
        raise Missing("its jars are not here and there is no `mvn` that fetches them (Debian: apt-get install maven)")


def copy_jars(folder: Path, pom: str, lib: Path) -> subprocess.CompletedProcess[str]:
    """Copies the dependencies of a project file, which is written to ``folder``, to ``lib``. Raises ``Missing`` if they
    take too long."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(pom)
    command = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml")]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={lib}"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired:
        raise Missing(f"its jars did not come within {FETCH_S:.0f} s") from None
