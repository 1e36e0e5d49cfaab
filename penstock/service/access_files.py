"""Reads the files of a service's access settings (users, rules, keys, certificates), again when they change, and makes
its guard. The part of native logins that waits; the decisions are in ``penstock/access`` and ``guard.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import trio

from penstock.access.acl import parse_acl
from penstock.access.authority import Authority
from penstock.access.passwords import parse_passwords
from penstock.access.tokens import TokenKeys
from penstock.protocol.link import Link, Links
from penstock.service.access_settings import AccessSettings
from penstock.service.audit import Audit
from penstock.service.audit_keeping import Live, at_brokers, at_live, at_own, keep_audit
from penstock.service.certificates import Certificates
from penstock.service.guard import Guard
from penstock.service.watched import Watched
from penstock.world import World, new_secret

LOOK_EVERY_S: Final = 2.0
ALPN: Final = "penstock"


class AccessFiles:
    """The users, rules, keys and certificates of a native port. Raises ``InvalidConfig`` for a file that cannot be read
    or understood.

    Attributes:
        authority: users, keys and rules as the files have them.
        guard: checks the requests of all connections of the port.
        certificates: of TLS; None for a port without it.
        offload: what takes long goes there.
    """

    def __init__(
        self, settings: AccessSettings, world: World, key: bytes | None, protocol: str = ALPN, whose: str = ""
    ) -> None:
        """``key``: the cluster's; None where there is none. ``protocol``: what ALPN agrees on. ``whose``: the service's
        name for the log."""
        clock = world.clock
        self._world = world
        self.offload = world.offload
        self.authority = Authority(new_secret, clock.wall_ms, key, takes_certificates=settings.tls_clients != "none")
        audit = Audit(clock.wall_ms, clock.monotonic)
        self.guard = Guard(self.authority, audit, clock.monotonic, lambda: clock.wall_ms() / 1000)
        files = settings.tls_files()
        self.certificates = Certificates(files, protocol, whose) if files is not None else None
        self._files: list[Watched] = []
        authority = self.authority
        watch = partial(Watched, whose=whose)
        if settings.password_file:
            self._files.append(watch("password_file", settings.password_file, parse_passwords, authority.set_users))
        if settings.acl_file:
            self._files.append(watch("acl_file", settings.acl_file, parse_acl, authority.set_acl))
        if settings.jwt_key_file:
            parse = partial(TokenKeys, rules=settings.token_rules())
            self._files.append(watch("jwt_key_file", settings.jwt_key_file, parse, authority.set_tokens))

    async def keep_audit(
        self, server: str, links: Links, brokers: Live | Sequence[str], own: Link | None = None
    ) -> None:
        """Stores the audit log until cancelled.

        Args:
            server: the name of the server.
            links: to brokers.
            brokers: asks which brokers are live, or the name servers that know.
            own: the broker of this process, which is asked first, and which nothing waits for at the end.
        """
        store = at_live(links, brokers) if callable(brokers) else at_brokers(links, brokers)
        if own is not None:
            await keep_audit(self.guard.audit.trail, server, at_own(own, store), goodbye_s=0)
        await keep_audit(self.guard.audit.trail, server, store)

    async def look(self) -> None:
        """Takes the files that have changed."""
        for one in self._files:
            await one.look(self._world.offload)
        if self.certificates is not None:
            now_s = self._world.clock.wall_ms() / 1000
            await self._world.offload(partial(self.certificates.refresh, now_s))

    async def run(self) -> None:
        """Looks until cancelled."""
        if not self._files and self.certificates is None:
            return
        while True:
            await trio.sleep(LOOK_EVERY_S)
            await self.look()
