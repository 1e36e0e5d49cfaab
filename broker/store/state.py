"""The state at one position of the log: the folds' snapshot and every queue's next offset, as bytes.

One encoding serves two places: a *checkpoint* file, which is derived and may vanish, and a *keyframe* at the start
of a log segment, which makes the log self-contained from there. docs/formats/index.md is the page.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, cast

import msgpack

from broker.store.disk import Disk
from broker.store.frames import crc32c
from broker.store.queue_index import Queue
from broker.store.records import KEYFRAME_TOPIC, Bytes
from penstock.message import encode_record, record_body

FOLDER: Final = "checkpoint"
SUFFIX: Final = ".ckpt"
MAGIC: Final = 0x50454E43  # "PENC"
VERSION: Final = 1
HEAD: Final = struct.Struct(">IIIQ")  # crc-32c of all that follows, magic, version, position
KEEP: Final = 2
"""So many checkpoints are kept; older ones are removed."""
PART_BYTES_MAX: Final = 1 << 20


class State(NamedTuple):
    """Folds and queue counters at a position. ``queues``: key and next offset of each."""

    folds: bytes
    queues: list[tuple[str, int]]


def encode_state(folds: bytes, queues: Iterable[Queue]) -> bytes:
    """The state as bytes; equal states give equal bytes."""
    return cast(bytes, msgpack.packb([folds, sorted((queue.key, queue.next) for queue in queues)]))


def decode_state(data: Bytes) -> State:
    """The state in bytes that were checked before. ``b""`` is the state before the first record."""
    if not data:
        return State(b"", [])
    folds, queues = msgpack.unpackb(data)
    return State(folds, [(key, offset) for key, offset in queues])


def checkpoint_path(position: int) -> str:
    """Path of the checkpoint at a log position."""
    return f"{FOLDER}/{position:020d}{SUFFIX}"


def encode_checkpoint(position: int, state: bytes) -> bytes:
    """The file of a checkpoint."""
    data = HEAD.pack(0, MAGIC, VERSION, position)[4:] + state
    return crc32c(data).to_bytes(4, "big") + data


def decode_checkpoint(data: bytes, position: int) -> bytes | None:
    """The state in a checkpoint file, None if it is damaged in any way."""
    if len(data) < HEAD.size:
        return None
    crc, magic, version, stored_position = HEAD.unpack_from(data)
    if (magic, version, stored_position) != (MAGIC, VERSION, position) or crc != crc32c(data[4:]):
        return None
    return data[HEAD.size :]


def stored_positions(disk: Disk, folder: str, suffix: str) -> list[int]:
    """Positions for which a folder has a file, in order; other names are not ours and left alone."""
    names = [name.removesuffix(suffix) for name in disk.names(folder) if name.endswith(suffix)]
    return sorted(int(name) for name in names if name.isdigit())


def keyframe_records(state: bytes, now_ms: int) -> Iterator[bytes]:
    """The system records of a keyframe: the state in parts, each with its number and how many there are."""
    parts = max(1, -(-len(state) // PART_BYTES_MAX))
    for number in range(parts):
        piece = state[number * PART_BYTES_MAX : (number + 1) * PART_BYTES_MAX]
        body = cast(bytes, msgpack.packb([number, parts, piece]))
        yield encode_record(KEYFRAME_TOPIC.encode(), body, b"", born_ms=now_ms)


class KeyframeReader:
    """Puts the parts of a keyframe together."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def take(self, record: Bytes) -> bytes | None:
        """The whole state with its last part, else None. A part out of order starts over."""
        number, parts, piece = msgpack.unpackb(record_body(record))
        if number != len(self._pieces):
            self._pieces.clear()
            if number:
                return None
        self._pieces.append(piece)
        if len(self._pieces) < parts:
            return None
        state = b"".join(self._pieces)
        self._pieces.clear()
        return state
