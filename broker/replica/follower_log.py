"""The log of one node of a group: takes in what its leader sends, and reads what its peers lack, byte for byte.

A stretch of the log (``broker/store/raw.py``) is checked before it is written: every frame by its checksum and place,
epochs by their order, and that it continues the log. Where this log differs from the leader's, uncommitted frames are
cut. Committed frames are never cut: if they differ, this copy is damaged and is repaired.

An epoch begins with its record, the first frame of its leader. So ``epochs`` gives the epoch of the frame that ends at
each position, and two logs with the same epoch there are equal up to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from broker.replica.epochs import begun_before
from broker.replica.log_face import STRETCH_BYTES, Begun, Stretch
from broker.replica.members import NO_MEMBERS, TOPIC_BYTES, members_in
from broker.store.frames import blank_length
from broker.store.message_store import MessageStore
from broker.store.raw import BadPlace, Part, checked_parts, epochs_of, parts_of, read_frames, read_stretch
from penstock.protocol.requests.replicas import EpochAt, MembersAt

FIRST: Final = EpochAt(1, 0)
"""Before the first record of an epoch all is of this one."""


class Mismatch(Exception):
    """A stretch does not continue this log: the log is shorter, or was written in another epoch there."""

    def __init__(self, epoch: int, end: int) -> None:
        """``end``: this log may agree with the sender's at most up to there; its frame there is of ``epoch``."""
        super().__init__(f"the log has epoch {epoch} up to {end}")
        self.epoch = epoch
        self.end = end


class FollowerLog:
    """A node's log, as the replication of its group sees it (``log_face.ReplicaLog``).

    Args:
        store: opened as a copy (``open_store(..., committed=...)``).
        begun: gives the epochs that the store's folds know: number and position of each record.
        members: gives the latest change of members that they know.
    """

    def __init__(
        self, store: MessageStore, begun: Callable[[], Begun], members: Callable[[], MembersAt] = lambda: NO_MEMBERS
    ) -> None:
        self._store = store
        self._log = store.log
        self._begun = begun
        self._members = members
        self._tail: list[EpochAt] = []  # the epochs that begin behind what is applied
        self._changes: list[MembersAt] = []  # the changes of members that do
        self._find_tail()

    def _find_tail(self) -> None:
        """Finds the epochs and changes of members that begin behind the applied position. Within damage nothing is
        seen, until it is repaired."""
        self._tail, self._changes = [], []
        position = self.applied
        while position < self.end:
            try:
                data = read_stretch(self._log, position, STRETCH_BYTES, self.end)
            except BadPlace:
                position = next((last for first, last in self._store.damage if first <= position < last), self.end)
                continue
            for part in parts_of(data, position):
                self._note(part, data)
                position = part.behind

    def repaired(self) -> None:
        """A stretch that was damaged is good again: what waited for it goes on, up to the next one."""
        self._find_tail()
        with contextlib.suppress(BadPlace):
            self.commit(self.committed)

    # ------------------------------------------------------------ what there is

    @property
    def start(self) -> int:
        """The first position that is still there."""
        return self._log.start

    @property
    def end(self) -> int:
        """Position after the last frame."""
        return self._log.end

    @property
    def frames_end(self) -> int:
        """The same without a blank that nothing stands behind yet: what can be sent."""
        return self._log.frames_end

    @property
    def durable(self) -> int:
        """Position up to which this disk has everything."""
        return self._log.durable

    @property
    def committed(self) -> int:
        """Position up to which the group has everything, as far as this node knows."""
        return self._log.committed

    @property
    def applied(self) -> int:
        """Position up to which queues and folds know the log."""
        return self._store.applied

    @property
    def epochs(self) -> Begun:
        """All epochs of this log, in order."""
        return [FIRST, *[one for one in self._begun() if one.epoch > FIRST.epoch], *self._tail]

    @property
    def changes(self) -> list[MembersAt]:
        """The latest applied change of members, if there is one, and all behind it."""
        known = self._members()
        return [known, *self._changes] if known.position >= 0 else [*self._changes]

    def epoch_at(self, position: int) -> int:
        """The epoch of the frame that ends at a position; 0 at the log's very beginning."""
        return self._begun_before(position).epoch

    def _begun_before(self, position: int) -> EpochAt:
        """The epoch of the frame that ends at a position, and where it begins."""
        for epochs in (self._tail, self._begun()):
            found = begun_before(epochs, position)
            if found.epoch:
                return found
        return FIRST if position else EpochAt(0, 0)

    def stretch(self, position: int, until: int, bytes_max: int = STRETCH_BYTES) -> Stretch:
        """The log from a position on, at most up to ``until``, for a peer. Raises ``BadPlace``."""
        return Stretch(position, self.epoch_at(position), read_stretch(self._log, position, bytes_max, until))

    def frames(self, position: int, bytes_max: int) -> tuple[bytes, int]:
        """The log from a position on, for a peer that lacks it, and the position behind it. Raises ``BadPlace``."""
        return read_frames(self._log, position, bytes_max, self.end)

    def raw(self, position: int, size: int) -> bytes:
        """The bytes of the log there, unchecked, for a whole copy. Raises ``Damaged``."""
        return self._log.read_across(position, size)

    # ------------------------------------------------------------ taking in

    def receive(self, stretch: Stretch, epoch: int) -> int:
        """Takes in a stretch that the leader of ``epoch`` has sent. Nothing of it counts as durable before the next
        sync. Known frames are skipped; uncommitted frames that differ are cut. Returns the position
        behind it: up to there the log is the leader's.

        Raises ``Mismatch``, ``ProtocolError`` for bytes that are no such stretch, ``BadPlace`` if this copy differs in
        committed frames, ``StorageFull`` or ``StorageFailed``.
        """
        position, data = stretch.position, stretch.data
        parts = checked_parts(data, position, stretch.before, epoch)
        behind = parts[-1].behind
        if position > self.end:
            raise Mismatch(self.epoch_at(self.end), self.end)
        if self.epoch_at(position) != stretch.before:
            raise self._mismatch_before(position)
        if position < self.end:
            start = self._skip(data, parts)
            if start is None:
                return behind
            data = data[start:]
            parts = list(parts_of(data, self.end))
        try:
            self._store.following.receive(data, parts)
        finally:  # a full disk may stop it behind some of the parts
            for part in parts:
                if part.behind <= self.end:
                    self._note(part, data)
        return behind

    def _mismatch_before(self, position: int) -> Mismatch:
        """The frame that ends at a position is of another epoch: so may be all others of its epoch."""
        first = max(self._begun_before(position).position, self.committed)
        return Mismatch(self.epoch_at(first), first)

    def _skip(self, data: bytes, parts: Sequence[Part]) -> int | None:
        """The place in a stretch from which on this log lacks it; ``None`` where it has all. Differing bytes are
        cut."""
        first = parts[0].position
        own = read_stretch(self._log, first, len(data), self.end)
        if own.startswith(data):
            return None
        for position, start, stop in _frames_of(parts):
            if position == self.end:
                return start
            if own[start:stop] != data[start:stop] and not self._ends_with(position, data[start:stop]):
                self.cut(position)
                return start
        raise AssertionError("a stretch that differs from itself")

    def _ends_with(self, position: int, blank: bytes) -> bool:
        """Whether this blank is the last that stands in the log."""
        length = blank_length(blank)
        return bool(length) and position + length == self.end and self._log.read_some(position, len(blank)) == blank

    def cut(self, position: int) -> None:
        """Cuts the log at a frame's begin, durably. Not while a sync runs. Raises ``BadPlace`` for what
        is committed, and ``StorageFailed``."""
        if position < max(self.committed, self.applied):
            self._log.note_bad_place(position)
            raise BadPlace(position)
        self._store.following.cut(position)
        self._tail = [one for one in self._tail if one.position < position]
        self._changes = [one for one in self._changes if one.position < position]

    def commit(self, point: int) -> None:
        """The group has everything before ``point``: what of it is here is taken in, and may be read. Raises
        ``BadPlace`` where it cannot be taken in; frames before it are."""
        point = max(self.committed, min(point, self.end))
        try:
            self._store.following.apply(point)
        finally:
            self._store.mark_committed(point)
            self._tail = [one for one in self._tail if one.position >= self.applied]
            self._changes = [one for one in self._changes if one.position >= self.applied]

    def take_over(self) -> None:
        """This node is to lead: all of the log is taken in, though nothing more of it may be read before it is
        committed. Raises ``BadPlace``, and then nothing more of it is taken in."""
        position = self.applied
        while position < self.end:
            try:
                data = read_stretch(self._log, position, STRETCH_BYTES, self.end)
            except BadPlace as bad:
                self._log.note_bad_place(bad.position)
                raise
            position = max([part.behind for part in parts_of(data, position)], default=self.end)
        self._store.following.apply(self.end)
        self._tail.clear()
        self._changes.clear()

    def _note(self, part: Part, data: bytes) -> None:
        """Notes what begins in a part of the log. ``data``: the stretch that it is of."""
        self._note_epochs(part)
        if data.find(TOPIC_BYTES, part.start, part.stop) >= 0:
            self._changes += members_in(part.frames, part.position)

    def _note_epochs(self, part: Part) -> None:
        if not part.frames:
            return
        known = max(self.epoch_at(part.position), FIRST.epoch)
        _, highest = epochs_of(part.frames)
        if highest <= known:
            return
        position = part.position
        for frame in part.frames:
            epoch, _ = epochs_of((frame,))
            if epoch > known:
                self._tail.append(EpochAt(epoch, position))
                known = epoch
            position += len(frame)


def _frames_of(parts: Sequence[Part]) -> Iterator[tuple[int, int, int]]:
    """Position, start and stop of each frame and blank."""
    for part in parts:
        if not part.frames:
            yield part.position, part.start, part.stop
        position, start = part.position, part.start
        for frame in part.frames:
            yield position, start, start + len(frame)
            position += len(frame)
            start += len(frame)
