"""Shared subscriptions: messages leased to gateways and settled. Codes 120 to 129."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from penstock.protocol.requests.messages import Pulled
from penstock.protocol.requests.request import Done, Reply, Request, value

TAKEN_BYTES_MAX: Final = 1 << 20
"""The most that one ``TakeShared`` is answered with, unless its first message is larger."""


class ShareState(NamedTuple):
    """The state of a shared subscription at a broker. ``lag``: messages that are not settled, with the ``on_way`` ones,
    which gateways have, and the ``owed`` ones, which were given back or passed over and go out first. ``gateways`` and
    durable ``sessions``: how many hold it."""

    share: str
    lag: int
    on_way: int
    owed: int
    gateways: int
    sessions: int


@value
class TakeShared(Request):
    """Leases messages of a shared subscription to a taker: those that were given back first. Where there is none it
    waits up to ``wait_s``. The tag of an entry is the hash of the message's key if the share is ordered, else 0.
    ``resumes``: of the messages leased to the taker, from offset ``since`` on and before ``before``, it still has
    ``held`` only; ``count_max`` may then be 0."""

    code: ClassVar[int] = 120
    reply: ClassVar[type[Reply]] = Pulled
    share: str
    taker: str
    count_max: int
    wait_s: float = 0.0
    resumes: bool = False
    held: tuple[int, ...] = ()
    since: int = 0
    before: int = 1 << 62

    def reply_bytes(self) -> int:
        return TAKEN_BYTES_MAX if self.count_max else 0


@value
class SettleShared(Request):
    """Reports the outcome of messages: ``settled`` ones are done (answered when that is durable), ``returned`` ones are
    for others. Renews the taker's lease; with an empty ``share`` it does nothing else."""

    code: ClassVar[int] = 121
    reply: ClassVar[type[Reply]] = Done
    share: str
    taker: str
    settled: tuple[int, ...] = ()
    returned: tuple[int, ...] = ()


@value
class SharesPage(Reply):
    """Shared subscriptions by name; ``after`` continues, empty at the end."""

    shares: tuple[ShareState, ...]
    after: str


@value
class ListShares(Request):
    """Asks for the states of shared subscriptions whose names come after ``after``."""

    code: ClassVar[int] = 122
    reply: ClassVar[type[Reply]] = SharesPage
    is_repeatable: ClassVar[bool] = True
    after: str = ""
    count_max: int = 1000
