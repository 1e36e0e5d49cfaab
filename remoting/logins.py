"""Logins at the front: each command is signed by its user.

``AccessKey`` is a user of the password file, ``Signature`` proves its secret key (`penstock user key`). Where tokens
count, a ``SecurityToken`` is one: the user is its subject, and the secret key is the token itself. A client that shows
a certificate needs no signature. What a user may do then is what the access rules say, as at native ports. Pure.
"""

from __future__ import annotations

from typing import Final

from penstock.access.authority import EAVESDROPPED
from penstock.access.policy import SIGNATURE as BY_SIGNATURE
from penstock.access.policy import UNPROVEN, Identity
from penstock.access.scram import keyed
from penstock.access.tokens import Unfit
from penstock.errors import NotAuthorized
from penstock.service.frame_connection import Peer
from penstock.service.guard import Guard
from penstock.service.permissions import Permissions
from remoting.frames import Command
from remoting.signatures import ACCESS_KEY, SECURITY_TOKEN, is_signed

USERS_MAX: Final = 64
"""How many users of one connection are remembered: clients in one process share it."""
_WORDS: Final = "the server did not accept this login"
_HINT: Final = "check AccessKey and secret key; `penstock user key NAME` makes one"


class SignedLogins:
    """The logins of one connection.

    Attributes:
        is_known: whether a login has succeeded. Until then the connection is short-lived.
        user: the user of the last login; empty before the first.
    """

    def __init__(self, guard: Guard, peer: Peer) -> None:
        self._guard = guard
        self._peer = peer
        self._by_user: dict[str, Permissions] = {}
        self.is_known = False
        self.user = ""

    @property
    def asks(self) -> bool:
        """Whether the front asks for a login now."""
        return self._guard.authority.asks

    def permissions(self, command: Command) -> Permissions | None:
        """The permissions of a command's user; ``None`` where no login is asked for. Raises ``NotAuthorized``."""
        if not self._guard.authority.asks:
            return None
        if not self.is_known and not self._guard.may_try(self._peer):
            raise self._refusal("", "too_many")
        identity = self._identity(command)
        known = self._by_user.get(identity.user)
        if known is not None and known.identity == identity:
            return known
        if len(self._by_user) >= USERS_MAX:
            self._by_user.clear()
        made = Permissions(self._guard.authority, self._guard.audit, self._peer.address, identity)
        self._by_user[identity.user] = made
        self.is_known, self.user = True, identity.user
        self._guard.audit.note(identity, self._peer.address, "Login", identity.how, allowed=True)
        return made

    def _identity(self, command: Command) -> Identity:
        authority, user = self._guard.authority, command.text(ACCESS_KEY)
        if not user:
            shown = authority.of_certificate(self._peer.certificate, self._peer.ends_s)
            if shown is UNPROVEN:
                raise self._refusal("", "no_access_key")
            return shown
        token = command.text(SECURITY_TOKEN)
        if token and authority.tokens is not None:
            return self._of_token(command, user, token)
        users = authority.users
        found = users.by_name.get(user) if users is not None else None
        secret = found.signing if found is not None else b""
        if not is_signed(command, secret or keyed(b"decoy", user.encode())) or not secret:
            raise self._refusal(user, "wrong_signature")
        return Identity(user, BY_SIGNATURE)

    def _of_token(self, command: Command, user: str, token: str) -> Identity:
        if not self._peer.is_private:
            raise self._refusal(user, EAVESDROPPED)
        found = self._guard.authority.read_token(token.encode())
        if isinstance(found, Unfit):
            raise self._refusal(user, found.cause)
        if found.user != user or not is_signed(command, token.encode()):
            raise self._refusal(user, "wrong_signature")
        return found

    def _refusal(self, user: str, cause: str) -> NotAuthorized:
        """Counts and notes a failed login; only operators see the cause."""
        self._guard.failed(self._peer)
        who = self._guard.authority.claimed(user, BY_SIGNATURE)
        self._guard.audit.note(who, self._peer.address, "Login", BY_SIGNATURE, allowed=False, why=cause)
        return NotAuthorized(_WORDS, hint=_HINT)
