"""The user of an HTTP request, and what it may do, by the users, tokens and rules of the broker's ports.

A request shows a password (Basic), a token (Bearer) or, in its connection's handshake, a certificate. Passwords are
checked against the file of native clients. That takes a tenth of a second, so correct ones are remembered, under a
keyed hash, until users or rules change. Failures are limited by address, and a few passwords at most are checked at a
time. Without users, every caller may do everything.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import trio

from penstock.access.acl import ADMIN
from penstock.access.passwords import Users
from penstock.access.policy import AT_OPEN_PORT, CLUSTER, PASSWORD, UNPROVEN, Identity
from penstock.access.tokens import Unfit
from penstock.protocol.addresses import join_address
from penstock.service.access_files import AccessFiles
from penstock.service.exposure import is_loopback
from penstock.service.frame_connection import Peer
from penstock.service.http_server import shown_certificate
from penstock.world import new_secret

REMEMBERED_MAX: Final = 1_000
AT_ONCE: Final = 2
"""Passwords that are looked at at a time: each takes a core and 16 MB."""
HEADER_CHARACTERS_MAX: Final = 8_192
PASSWORD_CHARACTERS_MAX: Final = 1_024
_CHALLENGE: Final = 'Basic realm="penstock", charset="UTF-8", Bearer realm="penstock"'


class HttpLogins:
    """Judges the callers of one port.

    Args:
        files: users, keys and rules.
        refuse: makes the error of a refusal: of an HTTP status, a word for programs and one for people, perhaps with
            ``challenge`` (how to log in) and ``hint``.
        takes_clear: whether passwords and tokens may come over the network without TLS.
    """

    def __init__(self, files: AccessFiles, refuse: Callable[..., Exception], *, takes_clear: bool) -> None:
        self._refuse = refuse
        self._guard = files.guard
        self._authority = files.authority
        self._offload = files.offload
        self._takes_clear = takes_clear
        self._known: dict[bytes, Identity] = {}
        self._version = self._authority.version
        self._key = new_secret()
        self._room = trio.CapacityLimiter(AT_ONCE)

    async def identity_of(self, scope: Mapping[str, Any]) -> Identity:
        """The identity of an ASGI request. Raises the error of ``refuse`` for a wrong login, or one too many."""
        authority = self._authority
        if not authority.asks:
            return AT_OPEN_PORT
        shown = dict(scope["headers"]).get(b"authorization", b"")
        if not shown:
            return authority.of_certificate(*shown_certificate())
        version = authority.version
        if version != self._version:
            self._known.clear()
            self._version = version
        digest = hmac.digest(self._key, shown, "sha256")
        known = self._known.get(digest)
        if known is not None and authority.still(known):
            return known
        peer = peer_of(scope)
        if not (peer.is_private or self._takes_clear):
            raise self._refuse(403, "in-clear", "a password or token goes over TLS only, or from the same machine")
        identity = await self._proved(shown, peer)
        if version == authority.version:  # else it may be right by the old files alone
            while len(self._known) >= REMEMBERED_MAX:
                del self._known[next(iter(self._known))]
            self._known[digest] = identity
        return identity

    async def _proved(self, shown: bytes, peer: Peer) -> Identity:
        kind, _, value = shown[:HEADER_CHARACTERS_MAX].decode("latin-1").partition(" ")
        async with self._room:  # a guess that waits is counted before the next one is looked at
            if not self._guard.may_try(peer):
                raise self._refuse(
                    429, "too-many-logins", "too many logins from this address have failed: wait a minute"
                )
            found, who = None, UNPROVEN
            if kind.lower() == "bearer":
                read = self._authority.read_token(value.strip().encode("latin-1"))
                found = None if isinstance(read, Unfit) else read
            elif kind.lower() == "basic" and self._authority.users is not None:
                name, password = _read_basic(value)
                who = self._authority.claimed(name, PASSWORD)
                found = await self._of_password(self._authority.users, name, password)
            mechanism = kind[:20] if kind.isalnum() else "unknown"
            if found is None:
                self._guard.failed(peer)
                self._guard.audit.note(who, peer.address, "Login", mechanism, allowed=False, why="wrong")
                raise self._refuse(
                    401, "wrong-login", "user and password, or token, are not right", challenge=_CHALLENGE
                )
            self._guard.audit.note(found, peer.address, "Login", mechanism, allowed=True)
            return found

    async def _of_password(self, users: Users, name: str, password: str) -> Identity | None:
        if not name or len(name) > 255 or len(password) > PASSWORD_CHARACTERS_MAX:
            return None
        is_right = await self._offload(partial(users.have, name, password.encode()))
        return Identity(name, PASSWORD) if is_right else None

    def check(self, scope: Mapping[str, Any], identity: Identity, action: str, name: str = CLUSTER) -> None:
        """Raises what ``refuse`` makes unless an identity may do one of ``acl.NATIVE`` to a topic or the cluster."""
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
            raise self._refuse(401, "no-login", error.message, hint=error.hint, challenge=_CHALLENGE)
        raise self._refuse(403, "not-allowed", error.message, hint=error.hint)


def _read_basic(value: str) -> tuple[str, str]:
    """Name and password of a Basic login; empty where it is not well-formed."""
    try:
        name, _, password = b64decode(value.strip(), validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    return name, password


def peer_of(scope: Mapping[str, Any]) -> Peer:
    """The other end of an ASGI request's connection."""
    host, port = scope.get("client") or ("", 0)
    return Peer(0, join_address(host, port), is_private=scope.get("scheme") == "https" or is_loopback(host))
