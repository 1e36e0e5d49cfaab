"""One archive of Penstock for ``spark-submit --py-files``: its sources, as they lie here, and nothing that is compiled.

The same sources give the same bytes. Penstock's dependencies are not in it, for numpy, pyarrow and others are compiled
for one kind of machine: ``DRIVER`` and ``EXECUTORS`` name them. Executors use the source that the driver ships by value
(``shipping``), and the archive only for modules that users' functions import.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import penstock
import topicmap
from penstock.errors import InvalidConfig

EXECUTORS: Final = ("msgpack", "numpy", "orjson", "pyarrow")
"""Packages that the Python of executors, or of a Spark Connect server, needs to read and to decode."""
COMPRESSED: Final = ("backports.zstd", "lz4")
"""Further packages of executors, for bodies that producers compressed."""
DRIVER: Final = (*EXECUTORS, "click", "fastcrc", "mypy-extensions")
"""Packages that the driver's Python needs."""

_MADE: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o100644 << 16


def write_package(target: Path) -> int:
    """Writes the archive; returns how many modules it has.

    Raises:
        InvalidConfig: it cannot be written there, or there are no sources to put into it.
    """
    count = 0
    fresh = target.with_name(f".{target.name}.new")
    try:
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, source in _sources():
                info = zipfile.ZipInfo(name, _MADE)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, _MODE
                archive.writestr(info, source.read_bytes())
                count += 1
        if not count:
            raise InvalidConfig("Penstock's sources are not installed here", hint="wheels and clones have them")
        fresh.replace(target)
    except OSError as error:
        raise InvalidConfig(f"{target} cannot be written: {error.strerror or error}") from None
    finally:
        fresh.unlink(missing_ok=True)
    return count


def _sources() -> Iterator[tuple[str, Path]]:
    for package in (penstock, topicmap):
        (folder,) = package.__path__
        for source in sorted(Path(folder).rglob("*.py")):
            yield source.relative_to(Path(folder).parent).as_posix(), source
