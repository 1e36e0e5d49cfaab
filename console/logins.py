"""Users and their rights, browsers' logins, and failed attempts.

``Users`` finds the user of a password, token or certificate, and its rights, by the same files as the native ports. A
login is a random token in a cookie and an entry here, so that the console can end it. Without users each browser has a
login too, because the token against forged forms is in it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from penstock.access.acl import Rule
from penstock.access.policy import CLUSTER, PASSWORD, TOKEN, UNPROVEN, Identity
from penstock.errors import NotAuthorized
from penstock.service.access_files import AccessFiles
from penstock.world import Clock, new_secret

LOGINS_MAX: Final = 1_000
"""The number of logins at which a new one ends the oldest."""
FAILURES_MAX: Final = 10
FAILURES_S: Final = 60.0
"""Seconds in which an address may fail ``FAILURES_MAX`` times; then it has to wait."""
ADDRESSES_MAX: Final = 10_000
USER_LENGTH_MAX: Final = 255
PASSWORD_LENGTH_MAX: Final = 1_024
TOKEN_LENGTH_MAX: Final = 16_384


class Users(Protocol):
    """The users who may log in, and their rights."""

    @property
    def takes_tokens(self) -> bool:
        """Whether a token is a login."""

    async def of_password(self, user: str, password: str) -> Identity | None:
        """The user, if the password is right; else None."""

    async def of_token(self, token: str) -> Identity | None:
        """The user of a token; None if it is invalid."""

    def of_certificate(self, name: str, ends_s: float) -> Identity:
        """The identity of a certificate; ``UNPROVEN`` where certificates do not count."""

    def claimed(self, user: str) -> Identity:
        """The user in the audit log for a wrong password; ``UNPROVEN`` if there is no such user."""

    def named(self, user: str) -> Identity:
        """The identity of a name; ``UNPROVEN`` if it cannot log in."""

    def still(self, identity: Identity) -> bool:
        """Whether a login still counts: its user is there, its token or certificate has not ended."""

    def refusal(self, identity: Identity, action: str, name: str = CLUSTER) -> NotAuthorized | None:
        """The reason why an identity may not do one of ``acl.NATIVE`` to a topic, a group or the cluster; None if it
        may."""

    def names(self) -> Sequence[str]:
        """The names of all users of the password file, sorted."""

    def rules(self) -> Sequence[Rule] | None:
        """The access rules in their order; None where there is no file of them."""


class UserFiles(Users):
    """The users, tokens and rules of files (docs/formats/access.md), those of the native ports."""

    def __init__(self, files: AccessFiles) -> None:
        self._files = files
        self._authority = files.authority

    @property
    def takes_tokens(self) -> bool:
        return self._authority.tokens is not None

    async def of_password(self, user: str, password: str) -> Identity | None:
        await self._files.look()
        users = self._authority.users
        if users is None or len(user) > USER_LENGTH_MAX or len(password) > PASSWORD_LENGTH_MAX:
            return None
        is_right = await self._files.offload(partial(users.have, user, password.encode("utf-8", "surrogatepass")))
        return Identity(user, PASSWORD) if is_right else None

    async def of_token(self, token: str) -> Identity | None:
        await self._files.look()
        found = self._authority.read_token(token[:TOKEN_LENGTH_MAX].encode("utf-8", "surrogatepass"))
        return found if isinstance(found, Identity) else None

    def of_certificate(self, name: str, ends_s: float) -> Identity:
        return self._authority.of_certificate(name, ends_s)

    def claimed(self, user: str) -> Identity:
        return self._authority.claimed(user, PASSWORD)

    def named(self, user: str) -> Identity:
        known = Identity(user, PASSWORD)
        if self.still(known):
            return known
        return Identity(user, TOKEN) if self.takes_tokens else self.of_certificate(user, math.inf)

    def still(self, identity: Identity) -> bool:
        return self._authority.still(identity)

    def refusal(self, identity: Identity, action: str, name: str = CLUSTER) -> NotAuthorized | None:
        policy, who = self._authority.policy, identity if self.still(identity) else UNPROVEN
        return None if policy.may(who, action, name) else policy.refusal(who, (action,), name)

    def names(self) -> Sequence[str]:
        return sorted(self._authority.users.by_name) if self._authority.users is not None else []

    def rules(self) -> Sequence[Rule] | None:
        acl = self._authority.policy.acl
        return None if acl is None else acl.rules


@dataclass(slots=True)
class Login:
    """A browser that is logged in.

    Attributes:
        identity: the logged-in user; ``UNPROVEN`` without users.
        csrf: what each of its forms sends back.
        ends_s: when it ends, by the monotonic clock.
        said: what the next page shows once, the result of an action.
    """

    identity: Identity
    csrf: str
    ends_s: float
    said: list[str] = field(default_factory=list)

    @property
    def user(self) -> str:
        """The name; empty where there are no users."""
        return self.identity.user


class Logins:
    """All logins, by token. ``login_s``: seconds until a login ends."""

    def __init__(self, clock: Clock, login_s: float, new_token: Callable[[], bytes] = new_secret) -> None:
        self._clock = clock
        self._login_s = login_s
        self._new_token = new_token
        self._by_token: dict[str, Login] = {}

    def open(self, identity: Identity) -> tuple[str, Login]:
        """A new login and its token."""
        while len(self._by_token) >= LOGINS_MAX:
            del self._by_token[next(iter(self._by_token))]
        token = self._new_token().hex()
        ends_s = self._clock.monotonic() + self._login_s
        login = self._by_token[token] = Login(identity, self._new_token().hex(), ends_s)
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
