"""The slow side of authentication: reads the password and access files and the key of tokens, and checks passwords in
threads.

Files are read at the start, where a bad one is an error, and again when they change; a bad one then leaves what was
read before in force and is told in the log, once per change. At most ``CHECKERS`` passwords are checked at a time, so
that a herd of clients takes at most so many cores' worth of time and 16 MiB each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import trio

from gateway.access import Access
from gateway.tokens import TokenKey, TokenRules
from penstock.access.acl import parse_acl
from penstock.access.passwords import parse_passwords, verify
from penstock.errors import InvalidConfig
from penstock.world import World

CHECKERS: Final = 2
LOOK_EVERY_S: Final = 2.0

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Watched:
    """A file that is taken again whenever it changes. Raises ``InvalidConfig`` where it cannot be taken at first."""

    def __init__(self, path: Path, parse: Callable[[str], T], take: Callable[[T], None]) -> None:
        self._path = path
        self._read: Callable[[str], None] = lambda text: take(parse(text))
        self._seen: object = None
        self.failures = 0
        self.look(is_first=True)

    def look(self, *, is_first: bool = False, anyway: bool = False) -> None:
        """Takes the file if it is another than last time, or ``anyway``."""
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen != self._seen or anyway:
                self._seen = seen
                self._read(self._path.read_text())
        except (OSError, UnicodeDecodeError, InvalidConfig) as error:
            if is_first:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                raise InvalidConfig(f"{self._path}: {reason}") from None
            self.failures += 1
            _log.error("%s: %s; what was read before stays in force", self._path, error)


class Verifier:
    """Everything about access that waits."""

    def __init__(
        self,
        access: Access,
        world: World,
        password_file: str,
        acl_file: str,
        jwt_key_file: str = "",
        rules: TokenRules | None = None,
    ) -> None:
        """``rules``: for tokens. Raises ``InvalidConfig`` for a file that cannot be read or understood."""
        self._access = access
        self._world = world
        self._due = trio.Event()
        self._files: list[Watched] = []
        if password_file:
            self._files.append(Watched(Path(password_file), parse_passwords, access.set_users))
        if acl_file:
            self._files.append(Watched(Path(acl_file), parse_acl, access.set_acl))
        if jwt_key_file:
            parse = partial(TokenKey, rules=rules or TokenRules())
            self._files.append(
                Watched(Path(jwt_key_file), parse, lambda key: access.set_tokens(key, world.clock.wall_ms))
            )

    @property
    def failures(self) -> int:
        """How often a changed file could not be taken."""
        return sum([one.failures for one in self._files])

    def wake(self) -> None:
        """There is something to check."""
        self._due.set()

    def look(self, *, anyway: bool = False) -> None:
        """Takes the files that have changed, or all of them."""
        for one in self._files:
            one.look(anyway=anyway)

    async def run(self) -> None:
        """Checks and looks until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(CHECKERS):
                nursery.start_soon(self._check)
            while self._files:
                await trio.sleep(LOOK_EVERY_S)
                self.look()

    async def _check(self) -> None:
        while True:
            check = self._access.take()
            if check is None:
                self._due = trio.Event() if self._due.is_set() else self._due
                await self._due.wait()
                continue
            right = await self._world.offload(partial(verify, check.hashed, check.password))
            self._access.checked_as(check, right)
