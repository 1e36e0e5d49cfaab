"""Up to where the log is committed: on as many disks as its topics and facts ask for.

``durable`` is what this disk has, ``committed`` what all copies together promise. What is committed is readable and is
never taken back. A log of one copy is committed as soon as it is durable.
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
