"""A whole copy of the log for a node that is new, or that ends before its leader's log begins.

Segments arrive in stretches in ``replica/incoming``, from the leader's first position on, while the node's own log
stays as it is. When they reach the committed position and can be read from their beginning alone, a manifest makes them
the log; a crash after that is finished by the next start (``finish_resync``). After an earlier crash the next start
checks what has arrived and continues behind the last good frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgpack

from broker.replica.log_face import Stretch
from broker.replica.repair import Wanted
from broker.store import label, recovery, segment, state
from broker.store.commit_log import CommitLog
from broker.store.disk import Disk
from broker.store.frames import crc32c
from broker.store.raw import Part, check_epochs, checked_parts, epochs_of, raw_parts
from broker.store.recovery import DERIVED
from broker.store.scan import Scan
from broker.store.segment import SUFFIX, Segment, segment_path
from broker.store.settings import StoreSettings
from penstock.errors import ProtocolError, StorageFailed
from penstock.protocol.requests.request import Bytes
from penstock.world import Offload

FOLDER: Final = "replica/incoming"
MANIFEST: Final = "replica/manifest"
CLOSE_BYTES: Final = 64 << 20
"""A copy that is at most this far behind the committed position becomes the log, and following brings the rest."""
SYNC_BYTES: Final = 64 << 20
"""About how many bytes are written before each sync."""
_CRC_BYTES: Final = 4


class Resync:
    """A copy that is coming in. The node's own log may be open meanwhile, until ``finish``.

    Attributes:
        end: everything before it has come.
    """

    def __init__(self, disk: Disk, settings: StoreSettings, start: int, now: float, bytes_s: float = 0.0) -> None:
        """``disk``: the node's, locked. ``start``: first position of the leader's log. ``bytes_s``: most bytes that are
        asked for in a second; 0: no limit. Raises ``OSError``."""
        self._disk = disk
        self._settings = settings
        self._start = start
        self._bytes_s = bytes_s
        self._free_at = now
        self._before = 0
        self._rest = b""  # of a frame whose end has not come
        disk.make_folder("replica")
        disk.make_folder(FOLDER)
        segments = self._found()
        scan = Scan(segments, start)
        for _, frames in scan.runs():
            if scan.damage:
                break
            self._before = epochs_of(frames)[1]
        end = min([scan.frames_end, *[first for first, _ in scan.damage]])
        last = max(end, segments[-1].base)
        self._log = CommitLog(disk, settings, segments, last, folder=FOLDER)
        self._log.begin_at(last, start)
        self._log.committed = start
        self._log.cut(end)

    def _found(self) -> list[Segment]:
        """The segments that have arrived already. If the leader's log begins elsewhere by now, all are removed."""
        disk, start = self._disk, self._start
        bases = state.stored_positions(disk, FOLDER, SUFFIX)
        if bases[:1] != [start]:
            for base in bases:
                disk.remove(segment_path(base, FOLDER))
        return recovery.open_segments(disk, self._settings, FOLDER, start)

    @property
    def end(self) -> int:
        return self._log.end

    @property
    def coming(self) -> int:
        """The position of the bytes that ``take_raw`` takes next."""
        return self.end + len(self._rest)

    @property
    def is_sync_due(self) -> bool:
        """Whether much has come since the last sync."""
        return self._log.end - self._log.durable >= SYNC_BYTES

    def wanted(self, committed: int, now: float) -> Wanted | None:
        """The next part to request from the leader, if the rate allows it now."""
        return Wanted(self.end, committed) if self.end < committed and self.may_ask(now) else None

    def take(self, stretch: Stretch, now: float) -> None:
        """Writes a received stretch. Raises ``ProtocolError`` where it does not fit, ``StorageFull``,
        ``StorageFailed``."""
        self._rest = b""
        if stretch.position != self.end:
            raise ProtocolError(f"the received part of the log at position {stretch.position} is not wanted")
        if self.end > self._start and stretch.before != self._before:
            raise ProtocolError(f"the received part of the log at position {stretch.position} is of another epoch")
        self._write(stretch.data, checked_parts(stretch.data, stretch.position, stretch.before))
        self.count(len(stretch.data), now)

    def take_raw(self, body: Bytes) -> None:
        """Writes the whole frames among received bytes of the log from ``coming`` on; the next bytes bring the end of
        the last one. Each is checked. Raises as ``take``."""
        data = b"".join((self._rest, body))
        self._rest = b""
        parts = raw_parts(data, self.end)
        self._write(data, parts)
        self._rest = data[parts[-1].stop if parts else 0 :]

    def drop_rest(self) -> None:
        """The end of the last frame does not come."""
        self._rest = b""

    def count(self, size: int, now: float) -> None:
        """Bytes have arrived: the next ones are requested when the rate allows it."""
        if self._bytes_s:
            self._free_at = max(now, self._free_at) + size / self._bytes_s

    def may_ask(self, now: float) -> bool:
        """Whether the rate allows to ask for more now."""
        return now >= self._free_at

    def _write(self, data: bytes, parts: Sequence[Part]) -> None:
        """Writes all frames of a segment at once. Raises ``ProtocolError``, ``StorageFull``, ``StorageFailed``."""
        check_epochs(parts, self._before)
        begin: Part | None = None
        for number, part in enumerate(parts):
            if not part.frames:
                self._log.receive_blank(data[part.start : part.stop])
                continue
            begin = begin or part
            if number + 1 == len(parts) or not parts[number + 1].frames:
                self._log.receive(data[begin.start : part.stop])
                self._before, begin = epochs_of(part.frames)[1], None

    def sync(self) -> None:
        """Received frames are on the medium when it returns. Raises ``StorageFailed``."""
        point = self._log.sync_point()
        self._log.sync()
        self._log.mark_durable(point)

    async def sync_aside(self, offload: Offload) -> None:
        """``sync`` while more is taken. Not while another one runs."""
        point = self._log.sync_point()
        await offload(self._log.sync)
        self._log.mark_durable(point)

    def is_whole(self, committed: int) -> bool:
        """Whether the received copy can be the log: it reaches the committed position, except for a small rest, and can
        be read from its beginning alone."""
        if self.end < committed - CLOSE_BYTES or self.end <= self._start:
            return False
        return not self._start or recovery.keyframe_at(self._log.segments, self._start) is not None

    def finish(self) -> None:
        """Makes the received copy the log. The node's own is closed by now, its folder locked. Raises
        ``StorageFailed``."""
        self.sync()
        bases = list(self._log.bases)
        self._log.close()
        try:
            _write_manifest(self._disk, bases)
            finish_resync(self._disk)
        except OSError as error:
            raise StorageFailed(f"the copy of the log cannot be put in place: {error.strerror}") from None

    def close(self) -> None:
        """Gives up for now; the received part stays."""
        self._log.close()


def _write_manifest(disk: Disk, bases: list[int]) -> None:
    body = msgpack.packb(bases)
    data = crc32c(body).to_bytes(_CRC_BYTES, "big") + body
    for _ in disk.replace(MANIFEST, [bytes(len(data))], lambda: data):
        pass
    disk.sync_names("replica")


def _read_manifest(disk: Disk) -> list[int] | None:
    """First positions of the segments that are to be the log; ``None`` where none are. One that is damaged was never
    whole: it is on the medium before anything is moved."""
    try:
        data = disk.read(MANIFEST)
    except FileNotFoundError:
        return None
    body = data[_CRC_BYTES:]
    if int.from_bytes(data[:_CRC_BYTES], "big") != crc32c(body):
        return None
    return [int(base) for base in msgpack.unpackb(body)]


def finish_resync(disk: Disk) -> bool:
    """Puts a copy that has come as a whole in the place of the log, or goes on with that; before a store is opened.
    Whether there was one. Raises ``OSError``."""
    bases = _read_manifest(disk)
    if not bases:
        return False
    for folder in DERIVED:
        disk.make_folder(folder)
        for name in disk.names(folder):
            disk.remove(f"{folder}/{name}")
    disk.make_folder(segment.FOLDER)
    disk.remove(label.PATH)
    for base in state.stored_positions(disk, segment.FOLDER, SUFFIX):
        if base not in bases:
            disk.remove(segment_path(base))
    come = state.stored_positions(disk, FOLDER, SUFFIX)
    for base in bases:
        if base in come:
            disk.move(segment_path(base, FOLDER), segment_path(base))
    label.write(disk, bases[0])
    disk.remove(MANIFEST)
    return True
