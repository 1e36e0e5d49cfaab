"""The write side of a copy of the log that another node leads: bytes are received first and taken in later.

Received bytes are log, and count as this disk's. Queues and folds take them in when they are committed, in the way of a
start (``Writing.replay``). So a copy's queues, folds, chunks and checkpoints hold committed state only, and uncommitted
bytes may be cut (``cut``).

Invariant: ``applied <= end``; while this node leads the two are one.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Final

from broker.store.commit_log import CommitLog
from broker.store.raw import Part, parts_of, read_stretch, split
from broker.store.sealing import Sealing
from broker.store.writing import Writing
from penstock.errors import StorageFull

HELD_BYTES_MAX: Final = 16 << 20
"""Most bytes that are kept in memory until they are taken in. More than that is read from the log again."""
READ_BYTES: Final = 1 << 20


class Following:
    """The log of another leader as it comes in, and how far it is taken in.

    Attributes:
        applied: queues and folds know the log up to there.
    """

    def __init__(self, log: CommitLog, writing: Writing, sealing: Sealing) -> None:
        self._log = log
        self._writing = writing
        self._sealing = sealing
        self._held: deque[Part] = deque()  # the next stretch, as it was received; nothing, or all up to the end
        self._held_bytes = 0
        self._is_behind = False  # a start has found more than is kept
        self.applied = log.end

    def begin_at(self, position: int) -> None:
        """The log is taken in up to there."""
        self.applied = position
        self._forget()

    def receive(self, data: bytes, parts: Sequence[Part]) -> None:
        """Writes a stretch of the log behind the end; ``parts`` are all that it is made of. Raises ``StorageFull`` or
        ``StorageFailed``: some of the parts may be written then, from the first one on."""
        log, start = self._log, 0
        is_held = self._held_bytes + len(data) <= HELD_BYTES_MAX and (self._held or self.applied == log.end)
        if not is_held:
            self._forget()
        try:
            for part in parts:
                if not part.frames:
                    self._write(data, start, part.start)
                    log.receive_blank(data[part.start : part.stop])
                    start = part.stop
            self._write(data, start, len(data))
        except BaseException:
            self._forget()
            raise
        if is_held:
            self._hold([part for part in parts if part.frames])

    def _write(self, data: bytes, start: int, stop: int) -> None:
        if stop > start:
            self._log.receive(data if stop - start == len(data) else data[start:stop])

    def cut(self, position: int) -> None:
        """Takes back what was received from ``position`` on, durably. Raises ``StorageFailed``."""
        assert position >= self.applied, "a cut of what is taken in"
        self._forget()
        self._log.cut(position)

    def apply(self, until: int) -> None:
        """Queues and folds take the log in up to a position, at which a frame ends. Raises ``BadPlace`` where it cannot
        be read: they have taken in the frames before it."""
        until = min(until, self._log.end)
        while self.applied < until:
            if not self._held and not self._read(until):
                return
            if not self._apply_next(until):
                return

    def _apply_next(self, until: int) -> bool:
        """The next part that is held, or what of it stands before a position; whether there was any."""
        part = self._held[0]
        if part.position >= until:
            return False
        if part.behind > until:
            part, self._held[0] = split(part, until - part.position)
        else:
            self._held.popleft()
        self._held_bytes -= part.stop - part.start
        self._take_in(part)
        return True

    # ------------------------------------------------------------ a start

    def find(self, part: Part, known: int) -> None:
        """A start has found these good frames behind all others, and knows that the log is committed up to ``known``,
        so that frames before that are taken in."""
        if self._is_behind:
            return
        self._held.append(part)
        self._held_bytes += part.stop - part.start
        while self._held and self._apply_next(known):
            with contextlib.suppress(StorageFull):
                self._sealing.catch_up(known)
        if self._held_bytes > HELD_BYTES_MAX:
            self._forget()
            self._is_behind = True

    def found(self, known: int, stop: int) -> None:
        """Ends the replay: the log is good up to ``stop``. Raises ``BadPlace``."""
        self._is_behind = False
        self.apply(min(known, stop))
        self._log.mark_committed(min(known, self._log.end))

    def _take_in(self, part: Part) -> None:
        if part.position > self.applied:  # behind a blank: a segment begins
            self._sealing.plan(part.position)
        self._sealing.plan_if_due(part.position)
        self._writing.replay(part.position, part.frames)
        self.applied = part.behind

    def _read(self, until: int) -> bool:
        data = read_stretch(self._log, self.applied, READ_BYTES, until)
        self._hold([part for part in parts_of(data, self.applied) if part.frames])
        return bool(self._held)

    def _hold(self, parts: Sequence[Part]) -> None:
        self._held.extend(parts)
        self._held_bytes += sum([part.stop - part.start for part in parts])

    def _forget(self) -> None:
        self._held.clear()
        self._held_bytes = 0
