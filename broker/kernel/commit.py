"""The commit rule: the position up to which the log is on as many disks as its topics and facts need.

``durable`` is what this disk has, ``committed`` what all copies together promise. Committed messages can be read and
are never cut. A log of one copy is committed as soon as it is durable.
"""

from __future__ import annotations

from typing import Final, Protocol


class CommitRule(Protocol):
    """Decides up to where the log is committed."""

    def committed(self, durable: int) -> int:
        """The position before which all is committed, now that this disk has all before ``durable``. Only grows."""
        ...


class OneCopy:
    """The rule of a log that is on this disk alone."""

    def committed(self, durable: int) -> int:
        return durable


ONE_COPY: Final = OneCopy()
