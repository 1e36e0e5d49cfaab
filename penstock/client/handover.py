"""What a member does when queues come and go: the program's callbacks, and until when it may begin work. Pure.

If the group is ordered or the program has ``on_revoked``, a revoked queue stays with the member until it releases it
(docs/decisions/0039-queues-are-handed-over-in-two-steps-where-it-is-asked-for.md). Otherwise another member gets it at
once: it is lost.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from penstock.client.arguments import check_flag
from penstock.errors import InvalidRequest
from penstock.protocol.received import MessageQueue
from penstock.world import Clock

Queues = tuple[MessageQueue, ...]
Callback = Callable[[Queues], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class HandOver:
    """A program's wishes for handing over queues.

    Attributes:
        ordered: its group is: no queue has two members at work.
        on_assigned: called with queues before reading begins there.
        on_revoked: called with queues that go to others, while this member may still commit.
        on_lost: called with queues of which it may commit nothing any more.
    """

    ordered: bool = False
    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None

    def __post_init__(self) -> None:
        check_flag("ordered", self.ordered)
        for name in ("on_assigned", "on_revoked", "on_lost"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise InvalidRequest(f"{name} is a function that takes queues, not {given!r}")

    @property
    def lets_go(self) -> bool:
        """Whether queues are handed over in two steps."""
        return self.ordered or self.on_revoked is not None

    def check_plain(self) -> HandOver:
        """Raises ``InvalidRequest`` where a callback is one that would have to be awaited."""
        for name in ("on_assigned", "on_revoked", "on_lost"):
            if inspect.iscoroutinefunction(getattr(self, name)):
                raise InvalidRequest(f"{name} is a plain function here", hint="penstock.Consumer takes async ones")
        return self


USUAL: Final = HandOver()


class Lease:
    """The time until which a member of an ordered group may begin work: the broker does not reassign its queues before.

    ``until``: in the clock's seconds; each answered sign of life moves it to ``session_s`` after that was sent.
    """

    def __init__(self, clock: Clock, session_s: float) -> None:
        self._clock = clock
        self._session_s = session_s
        self.until = 0.0

    def now(self) -> float:
        """The time at which a sign of life is sent."""
        return self._clock.monotonic()

    def renew(self, sent: float) -> None:
        """One that was sent then was answered."""
        self.until = max(self.until, sent + self._session_s)

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic() >= self.until
