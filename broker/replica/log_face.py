"""What replication needs of one node's disk: its copy of the log, and the node's promises.

Raft's index is a position of the log, its term the epoch in the head of each frame. The leader of an epoch writes each
position once, and an epoch begins with its first frame. So two logs with the same epoch at a position are equal up to
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from penstock.protocol.requests.replicas import EpochAt, MembersAt

Begun = Sequence[EpochAt]
"""Epochs of a log in order."""
STRETCH_BYTES: Final = 1 << 20
"""About how many bytes of the log are sent at a time."""


class HardState(NamedTuple):
    """The promises that a node must not forget. ``uuid``: of its data folder. ``epoch``: the highest that it has heard
    of. ``vote``: the node that has its vote in it. ``mark``: it has told a leader that its disk has everything before
    there."""

    cluster: str = ""
    node: str = ""
    uuid: str = ""
    epoch: int = 0
    vote: str = ""
    mark: int = 0

    def entered(self, epoch: int) -> HardState:
        """The state in an epoch; in a new one the vote is free again. An epoch never goes back."""
        assert epoch >= self.epoch, f"epoch {epoch} after epoch {self.epoch}"
        return self if epoch == self.epoch else self._replace(epoch=epoch, vote="")

    def voted(self, candidate: str) -> HardState:
        """The state with the vote given: once in an epoch."""
        assert self.vote in ("", candidate), f"a second vote in epoch {self.epoch}"
        return self._replace(vote=candidate)


class Stretch(NamedTuple):
    """Whole frames of the log from ``position`` on; the frame that ends there was written in epoch ``before``."""

    position: int
    before: int
    data: bytes


class ReplicaLog(Protocol):
    """A node's copy of the log (``broker/replica/follower_log.py``).

    Attributes:
        end: position after the last frame.
        frames_end: the same without a blank that ends a segment and that nothing stands behind yet.
        durable: position up to which this disk has everything.
        committed: position up to which the group has everything, as far as this node knows.
        applied: position up to which queues and folds know the log.
        epochs: all epochs of the log, unapplied frames included.
        changes: of the members: the latest that is applied, and all that are not.
    """

    @property
    def end(self) -> int: ...
    @property
    def frames_end(self) -> int: ...
    @property
    def durable(self) -> int: ...
    @property
    def committed(self) -> int: ...
    @property
    def applied(self) -> int: ...
    @property
    def epochs(self) -> Begun: ...
    @property
    def changes(self) -> Sequence[MembersAt]: ...

    def stretch(self, position: int, until: int, bytes_max: int = STRETCH_BYTES) -> Stretch:
        """The log from a position on, at most up to ``until``: at least one frame. Raises ``BadPlace``."""
        ...

    def frames(self, position: int, bytes_max: int) -> tuple[bytes, int]:
        """The log from a position on, and the position behind it; empty if only a blank follows. Raises
        ``BadPlace``."""
        ...

    def raw(self, position: int, size: int) -> bytes:
        """The bytes of the log there, unchecked, for a whole copy. Raises ``Damaged``."""
        ...

    def receive(self, stretch: Stretch, epoch: int) -> int:
        """Takes in what the leader of ``epoch`` has sent; nothing of it is durable before the next sync. Known frames
        are skipped. Returns the position up to which the log is the leader's.

        Raises ``Mismatch``, ``ProtocolError``, ``BadPlace``, ``StorageFull``, ``StorageFailed``.
        """
        ...

    def cut(self, position: int) -> None:
        """Cuts the log at a frame's begin, durably; never committed frames."""
        ...

    def commit(self, point: int) -> None:
        """The group has everything before ``point``: it is taken in, and may be read."""
        ...

    def epoch_at(self, position: int) -> int:
        """The epoch of the frame that ends at a position; 0 at the log's very beginning."""
        ...

    def repaired(self) -> None:
        """A stretch that was damaged is good again: what waited for it goes on."""
        ...

    def take_over(self) -> None:
        """This node is to lead: all of its log is taken in, and not more of it readable than before."""
        ...


class StateFile(Protocol):
    """The file of a node's hard state (``broker/replica/hard_state.py``)."""

    def load(self) -> HardState | None:
        """The saved state; None in a new folder. Raises ``Damaged`` if no slot is good."""
        ...

    def save(self, state: HardState) -> None:
        """Durable when it returns. Raises ``StorageFailed``."""
        ...
