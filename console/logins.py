"""Users and their rights, browsers' logins, and failed attempts.

``Users`` says whether a password is right, and what a user may do, by the same files as the native ports. A login is a
random token in a cookie and an entry here, so that it ends when the console says so. Where there are no users, each
browser has a login all the same: its token against forged forms is in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import trio

from penstock.access.acl import Acl, Rule, parse_acl
from penstock.access.passwords import Users as FileUsers
from penstock.access.passwords import parse_passwords, verify
from penstock.access.policy import CLUSTER, PASSWORD, Identity, Policy
from penstock.errors import NotAuthorized
from penstock.service.access_files import LOOK_EVERY_S
from penstock.service.watched import Watched
from penstock.world import Clock, Offload, new_secret

LOGINS_MAX: Final = 1_000
"""At this number a new login ends the oldest one."""
FAILURES_MAX: Final = 10
FAILURES_S: Final = 60.0
"""Seconds in which an address may fail ``FAILURES_MAX`` times; then it has to wait."""
ADDRESSES_MAX: Final = 10_000
USER_LENGTH_MAX: Final = 255
PASSWORD_LENGTH_MAX: Final = 1_024


class Users(Protocol):
    """The users who may log in, and their rights."""

    async def authenticate(self, user: str, password: str) -> bool:
        """Whether this is a user, and its password."""

    def refusal(self, user: str, action: str, name: str = CLUSTER) -> NotAuthorized | None:
        """Why a user may not do one of ``acl.NATIVE`` to a topic, a group or the cluster; None if it may."""

    def names(self) -> Sequence[str]:
        """The names of all users, sorted."""

    def rules(self) -> Sequence[Rule] | None:
        """The access rules in their order; None where there is no file of them."""


class UserFiles(Users):
    """The users of a password file and their rights by a file of rules (docs/formats/access.md), both those of the
    native ports. ``run`` reads them again when they have changed.

    Raises ``InvalidConfig`` for a file that cannot be read.
    """

    def __init__(self, passwords: str, rules: str, offload: Offload) -> None:
        """``rules``: empty for none: users may look then, and not change."""
        self._offload = offload
        self._users = FileUsers({})
        self._policy = Policy()
        self._files: list[Watched] = [Watched("password_file", passwords, parse_passwords, self._take)]
        if rules:
            self._files.append(Watched("acl_file", rules, parse_acl, self._take_rules))

    async def authenticate(self, user: str, password: str) -> bool:
        if len(user) > USER_LENGTH_MAX or len(password) > PASSWORD_LENGTH_MAX:
            return False
        await self.look()
        return await self._offload(partial(_is_right, self._users, user, password))

    def refusal(self, user: str, action: str, name: str = CLUSTER) -> NotAuthorized | None:
        identity = Identity(user if user in self._users.by_name else "", PASSWORD)
        return None if self._policy.may(identity, action, name) else self._policy.refusal(identity, (action,), name)

    def names(self) -> Sequence[str]:
        return sorted(self._users.by_name)

    def rules(self) -> Sequence[Rule] | None:
        return None if self._policy.acl is None else self._policy.acl.rules

    async def look(self) -> None:
        """Takes the files that have changed."""
        for one in self._files:
            await one.look(self._offload)

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            await trio.sleep(LOOK_EVERY_S)
            await self.look()

    def _take(self, users: FileUsers) -> None:
        self._users = users

    def _take_rules(self, acl: Acl) -> None:
        self._policy = Policy(acl)


def _is_right(users: FileUsers, user: str, password: str) -> bool:
    """Whether a user has this password. Slow, and equally so for users that are not there."""
    known = users.by_name.get(user)
    is_right = verify(known or users.decoy(user), password.encode("utf-8", "surrogatepass"))
    return is_right and known is not None


@dataclass(slots=True)
class Login:
    """A browser that is logged in.

    Attributes:
        user: empty where there are no users.
        csrf: what each of its forms sends back.
        ends_s: when it ends, by the monotonic clock.
        said: what the next page shows once, the result of an action.
    """

    user: str
    csrf: str
    ends_s: float
    said: list[str] = field(default_factory=list)


class Logins:
    """All logins, by token. ``login_s``: after so many seconds one ends."""

    def __init__(self, clock: Clock, login_s: float, new_token: Callable[[], bytes] = new_secret) -> None:
        self._clock = clock
        self._login_s = login_s
        self._new_token = new_token
        self._by_token: dict[str, Login] = {}

    def open(self, user: str) -> tuple[str, Login]:
        """A new login and its token."""
        while len(self._by_token) >= LOGINS_MAX:
            del self._by_token[next(iter(self._by_token))]
        token = self._new_token().hex()
        ends_s = self._clock.monotonic() + self._login_s
        login = self._by_token[token] = Login(user, self._new_token().hex(), ends_s)
        return token, login

    def find(self, token: str) -> Login | None:
        """The login of a token that has not ended."""
        login = self._by_token.get(token)
        if login is not None and login.ends_s <= self._clock.monotonic():
            del self._by_token[token]
            return None
        return login

    def close(self, token: str) -> None:
        """Ends a login."""
        self._by_token.pop(token, None)


class Attempts:
    """Attempts to log in, by address. Each counts as failed from its beginning, so that none is made beyond the limit
    however many are under way."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, deque[float]] = {}

    def begin(self, address: str) -> bool:
        """Counts an attempt of an address, and whether it may be made."""
        now = self._clock.monotonic()
        times = self._failed.get(address)
        if times is None:
            if len(self._failed) >= ADDRESSES_MAX:
                del self._failed[next(iter(self._failed))]
            times = self._failed[address] = deque()
        while times and times[0] <= now - FAILURES_S:
            times.popleft()
        if len(times) >= FAILURES_MAX:
            return False
        times.append(now)
        return True

    def proves_right(self, address: str) -> None:
        """An attempt has not failed."""
        times = self._failed.get(address)
        if times:
            times.pop()
