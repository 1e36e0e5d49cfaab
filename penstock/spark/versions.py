"""The releases of pyspark that Penstock's source runs on: those that were tried, no others.

Before 4.2 a Python source cannot bound a batch (``maxOffsetsPerTrigger``) nor support ``availableNow``; the module with
these calls is missing there. Pure, but for the look at installed packages.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from penstock.errors import InvalidConfig

FIRST: Final = (4, 2)
UNTRIED: Final = (4, 4)
"""Releases from ``FIRST`` on and before ``UNTRIED``, as in pyproject.toml."""
_PACKAGES: Final = ("pyspark", "pyspark-client", "pyspark-connect")
_NUMBERS: Final = re.compile(r"(\d+)\.(\d+)")


def check_pyspark() -> None:
    """Raises ``InvalidConfig`` where pyspark is missing, or of a release on which the source was not tried."""
    try:
        import pyspark
    except ImportError as error:
        hint = "`pip install 'penstock[spark]'` installs it"
        raise InvalidConfig(f"Spark is not installed: {error}", hint=hint) from None
    check_release(str(pyspark.__version__))


def check_release(release: str) -> None:
    """Raises ``InvalidConfig`` for a release of pyspark that is not one of ours."""
    if not is_tried(release):
        hint = (
            f"`pip install '{_installed()}>={_told(FIRST)},<{_told(UNTRIED)}'`; executors and a Spark Connect server "
            "need one of these too"
        )
        raise InvalidConfig(f"pyspark {release} is installed, and {_refusal(release)}", hint=hint)


def check_server(release: str) -> None:
    """The same for the Spark of a Spark Connect server, to which the source travels."""
    if not is_tried(release):
        told = f"the Spark Connect server runs Spark {release}, and {_refusal(release)}"
        raise InvalidConfig(told, hint="SPARK_REMOTE names the server; without SPARK_REMOTE Spark runs on this machine")


def installed_release() -> str:
    """The release of pyspark that is installed; empty where there is none."""
    try:
        return version(_installed())
    except PackageNotFoundError:
        return ""


def is_tried(release: str) -> bool:
    """Whether Penstock runs on a release (``4.2.1``, ``4.2``)."""
    return FIRST <= _numbers(release) < UNTRIED


def _refusal(release: str) -> str:
    is_old = (0, 0) < _numbers(release) < FIRST
    why = "a Python source cannot bound its batches before 4.2" if is_old else "it was not tried"
    return f"Penstock runs on 4.2 and 4.3: {why}"


def _numbers(release: str) -> tuple[int, int]:
    match = _NUMBERS.match(release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _told(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))


def _installed() -> str:
    """The name of the package that has pyspark: there is one without Java's part."""
    for name in _PACKAGES:
        try:
            version(name)
        except PackageNotFoundError:
            continue
        return name
    return _PACKAGES[0]
