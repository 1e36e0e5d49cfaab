"""The label of a log: a small file beside its segments with the log's format and beginning.

docs/formats/log.md is the page. The label is on the medium before it takes effect: a newer format before a frame of it
is written, a later beginning before retention removes segments. A log without a label is of an older version and is
accepted; a log of a newer format is refused, because its contents might be lost unnoticed.
"""

from __future__ import annotations

import logging
import tomllib
from typing import Final, NamedTuple

from broker.store.disk import Disk
from broker.store.frames import crc32c
from broker.store.segment import FOLDER
from penstock.errors import DataFolderUnusable
from penstock.version import VERSION

PATH: Final = f"{FOLDER}/label.toml"
FORMAT: Final = 2
"""Grows with every change that an older version would take for damage, or would lose."""
BACK_HINT: Final = "start the newer Penstock again, or remove index/ and checkpoint/ to go back to this one"
_CRC: Final = b"crc = "

_log = logging.getLogger(__name__)


class Label(NamedTuple):
    """The contents of a label. ``begins``: the log's first position, as the last start or retention has left it."""

    format: int
    begins: int
    written_by: str = VERSION


def encode(label: Label) -> bytes:
    """The file of a label."""
    text = f'format = {label.format}\nwritten_by = "{label.written_by}"\nbegins = {label.begins}\n'.encode()
    return text + _CRC + b"%d\n" % crc32c(text)


def decode(data: bytes) -> Label:
    """The label in a file. Raises ``ValueError`` for anything else."""
    text, separator, crc = data.partition(_CRC)
    if not separator or int(crc) != crc32c(text):
        raise ValueError("its checksum is wrong")
    fields = tomllib.loads(text.decode())
    return Label(int(fields["format"]), int(fields.get("begins", 0)), str(fields.get("written_by", "")))


def read(disk: Disk) -> Label | None:
    """The label of a log; ``None`` where there is none that can be read. Raises ``DataFolderUnusable`` for one of a
    newer format."""
    try:
        label = decode(disk.read(PATH))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.error("%s cannot be read: %s. The log is taken as it is", PATH, error)
        return None
    if label.format > FORMAT:
        by = f" (written by Penstock {label.written_by})" if label.written_by else ""
        raise newer(f"the data folder has format {label.format}{by}", FORMAT)
    return label


def write(disk: Disk, begins: int) -> None:
    """Writes a label of today's format; it is on the medium on return. Raises ``OSError``."""
    data = encode(Label(FORMAT, begins))
    for _ in disk.replace(PATH, [bytes(len(data))], lambda: data):
        pass
    disk.sync_names(FOLDER)


def newer(what: str, known: int, hint: str = "start the newer Penstock again") -> DataFolderUnusable:
    """The refusal of what a newer version has written."""
    return DataFolderUnusable(f"{what}, and this Penstock {VERSION} reads up to {known}", hint=hint)
