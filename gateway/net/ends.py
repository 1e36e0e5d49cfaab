"""The two ends of a line (``gateway/net/shard.py``): the occupant that speaks over it, and the taker of its output.

Base classes, not protocols: compiled, they are called in a fraction of the time, and every packet calls both.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Occupant:
    """Occupant of a line (``gateway.connections.device.Device``)."""

    __slots__ = ()

    def receive(self, chunk: bytes) -> None:
        """Takes received bytes, at least one."""
        raise NotImplementedError

    def writable(self) -> None:
        """The line is no longer full."""
        raise NotImplementedError

    def broken(self) -> None:
        """The line is gone without a farewell."""
        raise NotImplementedError

    def is_new(self) -> bool:
        """Whether it is not let in yet, so that what it says next costs much more than a message."""
        return False

    def holdings(self) -> int:
        """How many things end with it, its subscriptions above all."""
        return 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Output:
    """Output side of a line, for its occupant. ``is_full``: it takes no more for now. ``unsent``: bytes of output that
    the other side has not taken."""

    __slots__ = ("is_full", "unsent")
    is_full: bool
    unsent: int

    def write(self, data: bytes) -> None:
        """Output for the end of this round."""
        raise NotImplementedError

    def write_now(self, data: bytes) -> None:
        """Output that goes at once if nothing is before it, for packets to which no others are added."""
        self.write(data)

    def set_reading(self, reads: bool) -> None:
        """Whether what the other side sends is to be read."""
        raise NotImplementedError

    def has_unread(self) -> bool:
        """Whether the other side has sent something that is not read yet."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes after the output of this round has been written. The occupant hears nothing more."""
        raise NotImplementedError
