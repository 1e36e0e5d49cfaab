"""The promises of a node on its disk: ``replica/state``, two slots that are written in turn.

docs/formats/replica.md is the page. A promise (an epoch, a vote) is on the medium before ``save`` returns. The mark, up
to which a node has told a leader that its disk has the log, is also written without a sync (``note``). Such writes go
to one slot only until it is synced, so the newest synced slot survives a power loss.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.replica.log_face import HardState
from broker.store.disk import Disk, File
from broker.store.frames import crc32c
from penstock.errors import Damaged, StorageFailed

FOLDER: Final = "replica"
PATH: Final = f"{FOLDER}/state"
SLOT_BYTES: Final = 4096
"""A page each: what a power loss tears is the slot that was being written."""
_MAGIC: Final = b"PENR"
VERSION: Final = 1
_HEAD: Final = struct.Struct(">I4sIQQQHHHH")
"""Checksum, magic, version, number of the write, epoch, mark, and the bytes of cluster, node, uuid and vote."""
_CRC_BYTES: Final = 4


def encode(state: HardState, number: int) -> bytes:
    """The slot of the write with this number. Raises ``ValueError`` where names do not fit."""
    names = [name.encode() for name in (state.cluster, state.node, state.uuid, state.vote)]
    head = _HEAD.pack(0, _MAGIC, VERSION, number, state.epoch, state.mark, *map(len, names))
    body = b"".join([head[_CRC_BYTES:], *names]).ljust(SLOT_BYTES - _CRC_BYTES, b"\0")
    if len(body) > SLOT_BYTES - _CRC_BYTES:
        raise ValueError("the names of cluster, node, uuid and vote do not fit a slot")
    return crc32c(body).to_bytes(_CRC_BYTES, "big") + body


def decode(slot: bytes) -> tuple[int, HardState] | None:
    """Number and state of a good slot."""
    if len(slot) != SLOT_BYTES or int.from_bytes(slot[:_CRC_BYTES], "big") != crc32c(slot[_CRC_BYTES:]):
        return None
    _, magic, version, number, epoch, mark, *sizes = _HEAD.unpack_from(slot)
    if magic != _MAGIC or version != VERSION:
        return None
    names: list[str] = []
    at = _HEAD.size
    for size in sizes:
        names.append(slot[at : at + size].decode())
        at += size
    cluster, node, uuid, vote = names
    return number, HardState(cluster, node, uuid, epoch, vote, mark)


class HardStateFile:
    """The state of a node, as its disk has it (``log_face.StateFile``). The folder ``replica`` is made if it is
    missing; the file with the first write."""

    def __init__(self, disk: Disk) -> None:
        """Raises ``OSError``."""
        self._disk = disk
        disk.make_folder(FOLDER)
        self._file: File | None = disk.open(PATH) if PATH.removeprefix(f"{FOLDER}/") in disk.names(FOLDER) else None
        slots = [] if self._file is None else [self._file.pread(SLOT_BYTES, at) for at in (0, SLOT_BYTES)]
        self._is_empty = not any(slots)
        good = [(found, place) for place, slot in enumerate(slots) if (found := decode(slot)) is not None]
        self._number, self._place = 0, 1
        self._state: HardState | None = None
        if good:
            (self._number, self._state), self._place = max(good)
        self._synced = self._place  # nothing unsynced goes there

    def load(self) -> HardState | None:
        """The saved state; ``None`` in a new folder. Raises ``Damaged`` if no slot is good: the promises are lost, and
        this node must not vote."""
        if self._state is None and not self._is_empty:
            raise Damaged(f"{PATH} is damaged: the promises of this node are unknown")
        return self._state

    def save(self, state: HardState) -> None:
        """It is on the medium when this returns. Raises ``StorageFailed``."""
        try:
            self._write(state)
            assert self._file is not None
            self._file.sync()
        except OSError as error:
            raise StorageFailed(f"{PATH} cannot be written: {error.strerror}") from None
        self._synced = self._place

    def note(self, mark: int) -> None:
        """The mark has grown, and is written down when the system comes to it. Errors do not count: a mark that is too
        low promises less. Nothing before the first ``save``."""
        if self._state is not None and mark > self._state.mark:
            try:
                self._write(self._state._replace(mark=mark))
            except OSError:
                return

    def _write(self, state: HardState) -> None:
        if self._file is None:
            self._file = self._disk.open(PATH, create=True)
        place = 1 - self._synced
        self._file.pwrite(encode(state, self._number + 1), place * SLOT_BYTES)
        self._number, self._state, self._place = self._number + 1, state, place

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
