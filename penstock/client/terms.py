"""What a consumer asks of its group beside topics: the filter of messages, and how queues are dealt. Pure.

Both are the group's, the same for all members (docs/decisions/0010-the-broker-assigns-queues.md). The broker's word
counts: a member pulls with the filter that its assignment names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from penstock.client.arguments import check_flag
from penstock.errors import InvalidRequest
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.groups import STRATEGIES, JoinGroup
from penstock.protocol.selectors.compiling import selector_of

_CONFIGURED: Final = "configured"
_log = logging.getLogger(__name__)


def check_filter(filter: object) -> str:
    """A filter that a program gave. Raises ``InvalidFilter``, and ``InvalidRequest`` for what is no text."""
    if not isinstance(filter, str):
        raise InvalidRequest(f"filter is a str, not {filter!r}")
    if filter:
        selector_of(filter)
    return filter


@dataclass(frozen=True, slots=True)
class Terms:
    """A member's wishes, as ``Consumer`` has them. Raises ``InvalidFilter`` and ``InvalidRequest`` for wrong ones."""

    filter: str = ""
    strategy: str = "average"
    room: str = ""
    queues: frozenset[MessageQueue] = frozenset()
    force: bool = False

    def __post_init__(self) -> None:
        check_filter(self.filter)
        if self.strategy not in STRATEGIES:
            raise InvalidRequest(f"strategy is one of {', '.join(STRATEGIES)}, not {self.strategy!r}")
        if not isinstance(self.room, str):
            raise InvalidRequest(f"room is a str, not {self.room!r}")
        if any(not isinstance(queue, MessageQueue) for queue in self.queues):
            raise InvalidRequest("queues are MessageQueues", hint="received messages and receipts have them")
        if bool(self.queues) != (self.strategy == _CONFIGURED):
            raise InvalidRequest("queues= and strategy='configured' go together")
        check_flag("force", self.force)

    def join(self, broker: str, member: JoinGroup, *, is_first: bool) -> JoinGroup:
        """The request to enter the group at a broker; others' terms are changed by the first one only."""
        names = tuple(sorted(queue.name for queue in self.queues if queue.broker == broker))
        return replace(
            member,
            filter=self.filter,
            strategy=self.strategy,
            room=self.room,
            queues=names,
            force=self.force and is_first,
        )

    def hear(self, group: str, filter: str) -> None:
        """Tells in the log that the group has another filter than this member was made with."""
        if filter != self.filter:
            _log.warning("group %s has the filter %r now; this member was made with %r", group, filter, self.filter)


NO_TERMS: Final = Terms()


def terms_of(filter: str, strategy: str, room: str, queues: Iterable[MessageQueue], force: bool) -> Terms:
    """The terms that a program gave. Raises as ``Terms``."""
    given: object = queues
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidRequest(f"queues are MessageQueues, not {given!r:.100}")
    try:
        named = frozenset(queues)
    except TypeError:
        raise InvalidRequest(f"queues are MessageQueues, not {given!r:.100}") from None
    return Terms(filter, strategy, room, named, force)
