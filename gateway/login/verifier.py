"""The slow side of authentication: reads the password and access files and the keys of tokens, and checks passwords in
threads.

Files are read at the start, where a bad one is an error, and in a thread when they change
(``penstock/service/watched.py``). At most ``CHECKERS`` passwords are checked at a time, so that a herd of clients takes
at most that many cores and 16 MiB for each.

An unforeseen error while a password is checked refuses that one login: it is logged and counted, and the next one is
checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import trio

from gateway.login.access import Access
from penstock.access.acl import parse_acl
from penstock.access.passwords import parse_passwords, verify
from penstock.access.tokens import TokenKeys, TokenRules
from penstock.service.watched import Watched
from penstock.world import World

CHECKERS: Final = 2
LOOK_EVERY_S: Final = 2.0

T = TypeVar("T")
_log = logging.getLogger(__name__)


def _then(take: Callable[[T], None], tell: Callable[[], None]) -> Callable[[T], None]:
    def taken(parsed: T) -> None:
        take(parsed)
        tell()

    return taken


class Bell:
    """A call for those who wait for work."""

    def __init__(self) -> None:
        self._rung = trio.Event()

    def ring(self) -> None:
        """Wakes the task that waits."""
        self._rung.set()

    async def wait(self) -> None:
        """Waits for the next ring; a ring since the last wait counts."""
        await self._rung.wait()

    def hush(self) -> None:
        """Nothing is left to do: the next wait is for another ring."""
        if self._rung.is_set():
            self._rung = trio.Event()


class Verifier:
    """Waiting side of access: files and password checks."""

    def __init__(
        self,
        access: Access,
        world: World,
        bell: Bell,
        password_file: str,
        acl_file: str,
        jwt_key_file: str = "",
        rules: TokenRules | None = None,
        *,
        on_rules: Callable[[], None],
        on_users: Callable[[], None],
    ) -> None:
        """``bell`` rings when there is a password to check. ``rules``: for tokens. ``on_rules`` and ``on_users`` are
        called when the access file, or the password file, is another.

        Raises ``InvalidConfig`` for a file that cannot be read or understood.
        """
        self._access = access
        self._world = world
        self._bell = bell
        self._asked = trio.Event()
        watch = partial(Watched, whose="the gateway")
        self._files: list[Watched] = []
        if password_file:
            self._files.append(
                watch("password_file", password_file, parse_passwords, _then(access.set_users, on_users))
            )
        if acl_file:
            self._files.append(watch("acl_file", acl_file, parse_acl, _then(access.set_acl, on_rules)))
        if jwt_key_file:
            parse = partial(TokenKeys, rules=rules or TokenRules())
            self._files.append(
                watch("jwt_key_file", jwt_key_file, parse, lambda keys: access.set_tokens(keys, world.clock.wall_ms))
            )

    @property
    def failures(self) -> int:
        """The number of changed files that could not be taken."""
        return sum([one.failures for one in self._files])

    def look_again(self) -> None:
        """All files are to be taken again, changed or not."""
        self._asked.set()

    async def look(self, *, anyway: bool = False) -> None:
        """Takes the files that have changed, or all of them."""
        for one in self._files:
            await one.look(self._world.offload, anyway=anyway)

    async def run(self) -> None:
        """Checks and looks until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(CHECKERS):
                nursery.start_soon(self._check)
            while self._files:
                with trio.move_on_after(LOOK_EVERY_S):
                    await self._asked.wait()
                anyway, self._asked = self._asked.is_set(), trio.Event()
                await self.look(anyway=anyway)

    async def _check(self) -> None:
        while True:
            check = self._access.take()
            if check is None:
                self._bell.hush()
                await self._bell.wait()
                continue
            if not self._access.may_check(check):
                await trio.lowlevel.checkpoint()  # very many may wait that are refused
                continue
            try:
                right = await self._world.offload(partial(verify, check.hashed, check.password))
            except Exception:
                _log.exception("an unforeseen error; the login that was checked is refused")
                self._access.left_unchecked(check)
            else:
                self._access.checked_as(check, right)
