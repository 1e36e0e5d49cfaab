"""Who a request is from, and whether it may do what it asks: the users, tokens and rules of the broker's ports.

A request shows a password (Basic) or a token (Bearer). A password is held against the same file by which native clients
log in; that takes a tenth of a second, so what was right is remembered, under a keyed hash, until users or rules
change. Failures are limited by address, and at most a few passwords are looked at at a time. Where there are no users,
every caller may do everything.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import trio

from events.problems import Problem
from penstock.access.acl import ADMIN
from penstock.access.passwords import Users, verify
from penstock.access.policy import AT_OPEN_PORT, CLUSTER, NOBODY, PASSWORD, Identity
from penstock.access.tokens import Unfit
from penstock.protocol.addresses import join_address
from penstock.service.access_files import AccessFiles
from penstock.service.exposure import is_loopback
from penstock.service.frame_connection import Peer
from penstock.world import Offload, new_secret

REMEMBERED_MAX: Final = 1_000
AT_ONCE: Final = 2
"""Passwords that are looked at at a time: each takes a core and 16 MB."""
HEADER_CHARACTERS_MAX: Final = 8_192
PASSWORD_CHARACTERS_MAX: Final = 1_024
_CHALLENGE: Final = 'Basic realm="penstock", charset="UTF-8", Bearer realm="penstock"'


class CallerLogins:
    """Judges the callers of one port.

    Args:
        files: users, keys and rules.
        takes_clear: whether passwords and tokens may come over the network without TLS.
    """

    def __init__(self, files: AccessFiles, offload: Offload, *, takes_clear: bool) -> None:
        self._guard = files.guard
        self._authority = files.authority
        self._offload = offload
        self._takes_clear = takes_clear
        self._known: dict[bytes, Identity] = {}
        self._version = self._authority.version
        self._key = new_secret()
        self._room = trio.CapacityLimiter(AT_ONCE)

    async def identity_of(self, scope: Mapping[str, Any]) -> Identity:
        """Who sends an ASGI request. Raises ``Problem`` for a login that is wrong, or one too many."""
        authority = self._authority
        if not authority.asks:
            return AT_OPEN_PORT
        shown = dict(scope["headers"]).get(b"authorization", b"")
        if not shown:
            return NOBODY
        if authority.version != self._version:
            self._known.clear()
            self._version = authority.version
        digest = hmac.digest(self._key, shown, "sha256")
        known = self._known.get(digest)
        if known is not None and authority.still(known):
            return known
        peer = peer_of(scope)
        if not (peer.is_private or self._takes_clear):
            raise Problem(403, "in-clear", "a password or token goes over TLS only, or from the bridge's own machine")
        identity = await self._proved(shown, peer)
        if self._version == authority.version:
            while len(self._known) >= REMEMBERED_MAX:
                del self._known[next(iter(self._known))]
            self._known[digest] = identity
        return identity

    async def _proved(self, shown: bytes, peer: Peer) -> Identity:
        kind, _, value = shown[:HEADER_CHARACTERS_MAX].decode("latin-1").partition(" ")
        async with self._room:  # a guess that waits is counted before the next one is looked at
            if not self._guard.may_try(peer):
                raise Problem(429, "too-many-logins", "too many logins from this address have failed: wait a minute")
            found: Identity | None = None
            if kind.lower() == "bearer":
                read = self._authority.read_token(value.strip().encode("latin-1"))
                found = None if isinstance(read, Unfit) else read
            elif kind.lower() == "basic" and self._authority.users is not None:
                found = await self._of_password(self._authority.users, value)
            mechanism = kind[:20] if kind.isalnum() else "unknown"
            if found is None:
                self._guard.failed(peer)
                self._guard.audit.note(NOBODY, peer.address, "Login", mechanism, allowed=False, why="wrong")
                raise Problem(401, "wrong-login", "user and password, or token, are not right", challenge=_CHALLENGE)
            self._guard.audit.note(found, peer.address, "Login", mechanism, allowed=True)
            return found

    async def _of_password(self, users: Users, value: str) -> Identity | None:
        try:
            name, colon, password = b64decode(value.strip(), validate=True).decode().partition(":")
        except ValueError:
            return None
        if not colon or len(name) > 255 or len(password) > PASSWORD_CHARACTERS_MAX:
            return None
        known = users.by_name.get(name)
        is_right = await self._offload(partial(verify, known or users.decoy(name), password.encode()))
        return Identity(name, PASSWORD) if is_right and known is not None else None

    def check(self, scope: Mapping[str, Any], identity: Identity, action: str, name: str = CLUSTER) -> None:
        """Raises ``Problem`` unless an identity may do one of ``acl.NATIVE`` to a topic, or to the cluster."""
        if identity is AT_OPEN_PORT:
            return
        policy, act = self._authority.policy, f"{scope['method']} {scope['path']}"
        allowed = policy.may(identity, action, name)
        if not allowed or action == ADMIN:
            why = "" if allowed else action
            self._guard.audit.note(identity, peer_of(scope).address, act, name, allowed=allowed, why=why)
        if allowed:
            return
        error = policy.refusal(identity, [action], name)
        if not identity.user:
            raise Problem(401, "no-login", error.message, hint=error.hint, challenge=_CHALLENGE)
        raise Problem(403, "not-allowed", error.message, hint=error.hint)


def peer_of(scope: Mapping[str, Any]) -> Peer:
    """The other end of an ASGI request's connection."""
    host, port = scope.get("client") or ("", 0)
    return Peer(0, join_address(host, port), is_private=scope.get("scheme") == "https" or is_loopback(host))
