"""The messages that a handler has in hand together, for asynchronous and blocking handlers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.client.positions import Position
from penstock.client.retry import BackOff
from penstock.client.unfinished import Flow, Unfinished
from penstock.protocol.received import ReceivedMessage

COMMIT_S: Final = 0.5
"""How often finished messages are committed."""
STOP_S: Final = 30.0
"""How long a stopped handler may still work on its current messages."""
FLOW: Final = Flow()
AGAIN: Final = BackOff(first_s=1.0, cap_s=30.0)
"""The waits before a handler has a message again that the broker could not take back."""


@dataclass(slots=True, eq=False)
class Job:
    """Messages that a handler gets together. ``repetition``: how often it had them before without the broker's word."""

    position: Position
    unfinished: Unfinished
    messages: Sequence[ReceivedMessage]
    repetition: int = 0

    @property
    def void(self) -> bool:
        """Whether the queue went elsewhere, or was sought, since these were handed over."""
        position = self.position
        return not position.live or position.leaving or position.unfinished is not self.unfinished


def chosen_of(messages: Sequence[ReceivedMessage], returned: object) -> Sequence[ReceivedMessage]:
    """The messages that a handler returned as not done; all of them where it returned something else."""
    try:
        chosen = frozenset(returned)  # type: ignore[call-overload]
    except TypeError:
        return messages
    return [one for one in messages if one in chosen] if chosen <= frozenset(messages) else messages
