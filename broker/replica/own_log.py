"""What the core of a group knows of its node's log: its end and its epochs, never its bytes."""

from __future__ import annotations

from collections.abc import Iterable

from broker.replica.epochs import begun_before
from penstock.protocol.requests.replicas import EpochAt, Members, MembersAt


class OwnLog:
    """One node's log in numbers.

    Attributes:
        end: position after the last frame.
        durable: position up to which this disk has everything.
        committed: position up to which the group has everything, as far as this node knows. Only grows.
        epochs: all that begin in it.
        changes: of the members, those that begin in it; the last one counts from its append on. Those that a setting
            has named stand at ``-1``.
    """

    def __init__(
        self,
        end: int = 0,
        durable: int = 0,
        committed: int = 0,
        epochs: Iterable[EpochAt] = (),
        changes: Iterable[MembersAt] = (),
    ) -> None:
        self.end = end
        self.durable = durable
        self.committed = committed
        self.epochs = list(epochs)
        self.changes = list(changes)

    @property
    def members(self) -> Members:
        """The members of the group now; none before a node has heard of one."""
        return self.changes[-1].members if self.changes else Members()

    @property
    def has_open_change(self) -> bool:
        """Whether the latest change of members may still be taken back."""
        return bool(self.changes) and self.changes[-1].position >= self.committed

    def epoch_at(self, position: int) -> int:
        """The epoch of the frame that ends at a position."""
        return begun_before(self.epochs, position).epoch

    def grow(self, end: int, epochs: Iterable[EpochAt] = (), changes: Iterable[MembersAt] = ()) -> None:
        """Frames were written up to ``end``, and these begin in them."""
        self.end = end
        self.epochs += epochs
        self.changes += changes

    def cut(self, position: int) -> None:
        """Cuts the log at a position; never committed frames."""
        assert position >= self.committed, f"a cut at {position}, and everything before {self.committed} is committed"
        self._end_at(position)

    def lack(self, position: int) -> None:
        """Notes that received entries could only be written up to there, though the group may have committed more."""
        self.committed = min(self.committed, position)
        self._end_at(position)

    def _end_at(self, position: int) -> None:
        self.end = position
        self.durable = min(self.durable, position)
        while self.epochs and self.epochs[-1].position >= position:
            self.epochs.pop()
        while self.changes and self.changes[-1].position >= position:
            self.changes.pop()

    def synced(self, point: int) -> None:
        """The disk has everything before ``point``."""
        self.durable = max(self.durable, min(point, self.end))

    def commit(self, point: int) -> None:
        """The group has everything before ``point``."""
        assert point <= self.end, f"{point} is committed, and the log ends at {self.end}"
        self.committed = max(self.committed, point)
