"""Users and their roles, browsers' logins, and failed attempts.

``Users`` says what roles a name and a password have. A login is a random token in a cookie and an entry here, so that
it ends when the console says so. Where there are no users, each browser has a login as administrator all the same: its
token against forged forms is in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from penstock.access.passwords import Users as FileUsers
from penstock.access.passwords import parse_passwords, verify
from penstock.errors import InvalidConfig
from penstock.service.watched import Watched
from penstock.world import Clock, Offload, new_secret

VIEWER: Final = "viewer"
ADMIN: Final = "admin"
NO_ROLES: Final[frozenset[str]] = frozenset()
LOGINS_MAX: Final = 1_000
"""At this number a new login ends the oldest one."""
FAILURES_MAX: Final = 10
FAILURES_S: Final = 60.0
"""Seconds in which an address may fail ``FAILURES_MAX`` times; then it has to wait."""
ADDRESSES_MAX: Final = 10_000
USER_LENGTH_MAX: Final = 255
PASSWORD_LENGTH_MAX: Final = 1_024


class Users(Protocol):
    """The users who may log in."""

    async def authenticate(self, user: str, password: str) -> frozenset[str]:
        """The roles of a user; none where name or password is wrong."""


class PasswordFile(Users):
    """The users of a password file (docs/formats/access.md), which each login reads again if it has changed.

    Args:
        admins: users with the role ``admin``; all others are viewers.

    Raises ``InvalidConfig`` for a file that cannot be read.
    """

    def __init__(self, path: Path, admins: Collection[str], offload: Offload) -> None:
        self._admins = frozenset(admins)
        self._offload = offload
        self._users = FileUsers({})
        self._file = Watched("cannot read password_file", str(path), parse_passwords, self._take)
        missing = sorted(self._admins - self._users.by_name.keys())
        if missing:
            raise InvalidConfig(f"admins names {missing[0]}, who is not in {path}", hint="`penstock user add`")

    async def authenticate(self, user: str, password: str) -> frozenset[str]:
        if len(user) > USER_LENGTH_MAX or len(password) > PASSWORD_LENGTH_MAX:
            return NO_ROLES
        await self._file.look(self._offload)
        is_right = await self._offload(partial(_is_right, self._users, user, password))
        if not is_right:
            return NO_ROLES
        return frozenset({VIEWER, ADMIN} if user in self._admins else {VIEWER})

    def _take(self, users: FileUsers) -> None:
        self._users = users


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
        roles: what it may do.
        csrf: what each of its forms sends back.
        ends_s: when it ends, by the monotonic clock.
        said: what the next page shows once, the result of an action.
    """

    user: str
    roles: frozenset[str]
    csrf: str
    ends_s: float
    said: list[str] = field(default_factory=list)

    @property
    def is_admin(self) -> bool:
        return ADMIN in self.roles


class Logins:
    """All logins, by token. ``login_s``: after so many seconds one ends."""

    def __init__(self, clock: Clock, login_s: float, new_token: Callable[[], bytes] = new_secret) -> None:
        self._clock = clock
        self._login_s = login_s
        self._new_token = new_token
        self._by_token: dict[str, Login] = {}

    def open(self, user: str, roles: frozenset[str]) -> tuple[str, Login]:
        """A new login and its token."""
        while len(self._by_token) >= LOGINS_MAX:
            del self._by_token[next(iter(self._by_token))]
        token = self._new_token().hex()
        ends_s = self._clock.monotonic() + self._login_s
        login = self._by_token[token] = Login(user, roles, self._new_token().hex(), ends_s)
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
    """Failed attempts to log in, by address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, deque[float]] = {}

    def may(self, address: str) -> bool:
        """Whether an address may try now."""
        times = self._failed.get(address)
        while times and times[0] <= self._clock.monotonic() - FAILURES_S:
            times.popleft()
        return times is None or len(times) < FAILURES_MAX

    def failed(self, address: str) -> None:
        """An attempt has failed."""
        if address not in self._failed and len(self._failed) >= ADDRESSES_MAX:
            del self._failed[next(iter(self._failed))]
        self._failed.setdefault(address, deque(maxlen=FAILURES_MAX)).append(self._clock.monotonic())
