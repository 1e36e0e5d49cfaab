"""Checks that what one party holds at a time is linearisable: an MQTT session and its owner, a queue and its member.

Each holding has a *token* that only grows: a session's epoch, a group's generation. A *grant* gives a key with its
token to a holder; a *use* is an answer of the broker that took the holder's token as valid (a save, a commit). The
history is what the askers see: when they asked, and when the answer came. It is linearisable, by its tokens, if

1. a token that was granted or used before another grant was asked for is no newer than that grant's, and older if
   another holder has it;
2. a use that was asked for after another holder had its grant is of a newer token than that grant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.protocol.link import Link, Links, OnResult
from penstock.protocol.requests.groups import Assignment, CommitOffsets, JoinGroup, WatchGroup
from penstock.protocol.requests.request import Done, Request, Result
from penstock.protocol.requests.sessions import EndSession, OpenedSession, OpenSession, SavedSessions, SaveSessions


class Seen(NamedTuple):
    """A grant or a use of a key, between two moments of its asker."""

    key: Hashable
    holder: str
    token: int
    is_grant: bool
    asked: int
    answered: int


@dataclass
class Fences:
    """The history of all askers."""

    seen: list[Seen] = field(default_factory=list)
    moments: int = 0

    def moment(self) -> int:
        self.moments += 1
        return self.moments

    def tap(self, request: Request, on_result: OnResult) -> OnResult:
        """What to give the result of a request to, so that it is in the history."""
        asked = self.moment()

        def answered(result: Result) -> None:
            at = self.moment()
            self.seen += [Seen(*one, asked, at) for one in holdings(request, result)]
            on_result(result)

        return answered

    def check(self) -> None:
        """Raises ``AssertionError`` with the two events that contradict each other."""
        by_key: dict[Hashable, list[Seen]] = defaultdict(list)
        for one in self.seen:
            by_key[one.key].append(one)
        for history in by_key.values():
            check(history)


def holdings(request: Request, result: Result) -> Iterator[tuple[Hashable, str, int, bool]]:
    """The grants and uses that an answer tells of: key, holder, token, and whether it is a grant."""
    match request, result:
        case OpenSession(client=client), OpenedSession(epoch=epoch) if epoch:
            yield ("session", client), str(epoch), epoch, True
        case SaveSessions(saves=saves), SavedSessions(fenced=fenced):
            for at, save in enumerate(saves):
                if at not in fenced and save.epoch > 0:
                    yield ("session", save.client), str(save.epoch), save.epoch, False
        case EndSession(client=client, epoch=epoch), Done() if epoch > 0:
            yield ("session", client), str(epoch), epoch, False
        case (JoinGroup(member=member) | WatchGroup(member=member)) as asked, Assignment(generation=generation):
            for queue in result.queues:
                yield (asked.group, queue.queue), member, generation, True
        case CommitOffsets(group=group, member=member, generation=generation, offsets=offsets), Done():
            for offset in offsets:
                yield (group, offset.queue), member, generation, False


def check(history: list[Seen]) -> None:
    """The two rules, for one key."""
    ended = sorted(history, key=lambda one: one.answered)
    newest: dict[str, Seen] = {}  # of each holder, among what was answered before
    granted: dict[str, Seen] = {}
    at = 0
    for one in sorted(history, key=lambda one: one.asked):
        while ended[at].answered < one.asked:
            known = ended[at]
            at += 1
            _keep(newest, known)
            if known.is_grant:
                _keep(granted, known)
        if one.is_grant:
            for before in newest.values():
                is_older = before.token <= one.token if before.holder == one.holder else before.token < one.token
                assert is_older, f"a grant is not newer than what was there before it: {before}, then {one}"
        else:
            for before in granted.values():
                is_newer = before.holder == one.holder or before.token < one.token
                assert is_newer, f"a token counts after another holder has its own: {before}, then {one}"


def _keep(newest: dict[str, Seen], one: Seen) -> None:
    known = newest.get(one.holder)
    if known is None or known.token < one.token:
        newest[one.holder] = one


class WatchedLinks(Links):
    """Links whose requests are in the history."""

    def __init__(self, inner: Links, fences: Fences) -> None:
        self._inner = inner
        self._fences = fences

    def link(self, address: str) -> Link:
        return _WatchedLink(self._inner.link(address), self._fences)

    def give_up(self, address: str) -> None:
        self._inner.give_up(address)


class _WatchedLink(Link):
    def __init__(self, inner: Link, fences: Fences) -> None:
        self._inner = inner
        self._fences = fences

    def submit(self, request: Request, on_result: OnResult) -> None:
        self._inner.submit(request, self._fences.tap(request, on_result))

    def flush(self) -> None:
        self._inner.flush()
