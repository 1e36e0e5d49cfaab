"""Identities: the exchanges by which clients of native ports prove theirs, and the users, keys and rules in force.

An authority holds users, keys of tokens, the cluster's key and the policy, each as its file was read last. ``asks``:
whether a port asks for a login; without users, keys of tokens and certificates a port is open. Every change counts up
``version``, so that callers with an earlier answer ask again.

An unknown user goes through the same steps as a known one, with a decoy, and fails in the same way. Pure: nonces, time
and files come as arguments.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from penstock.access.acl import Acl
from penstock.access.passwords import Users
from penstock.access.policy import CERTIFICATE as BY_CERTIFICATE
from penstock.access.policy import PASSWORD, SERVICE, SIGNATURE, UNPROVEN, Identity, Policy
from penstock.access.policy import SCRAM as BY_SCRAM
from penstock.access.policy import TOKEN as BY_TOKEN
from penstock.access.scram import ScramKeys
from penstock.access.scram_exchange import MALFORMED, WRONG_PROOF, Challenge, Denied, ScramExchange
from penstock.access.tokens import TokenKeys, Unfit
from penstock.protocol.logins import (
    CLUSTER_KEY,
    NAME_BYTES_MAX,
    NONCE_BYTES,
    SCRAM,
    TOKEN,
    server_proof,
    service_proof,
)

NO_MECHANISM: Final = "no_mechanism"
EAVESDROPPED: Final = "token_in_clear"
GONE: Final = "user_gone"


class Known(NamedTuple):
    """The exchange is over: who it is. ``data``: by which the server proves itself."""

    identity: Identity
    data: bytes = b""


Step = Challenge | Known | Denied


class Exchange(Protocol):
    """A login, from the client's first message on; it ends once, with ``Known`` or ``Denied``."""

    @property
    def claimed(self) -> str:
        """The user name that the client has given so far; empty if it has given none."""
        ...

    def receive(self, data: bytes) -> Step:
        """Handles the client's next message."""
        ...


class Authority:
    """The users, the keys of tokens, the cluster's key, and the policy.

    Args:
        new_nonce: makes 32 unpredictable bytes.
        wall_ms: milliseconds since 1970.
        key: the cluster's; None where there is none.
        takes_certificates: whether a certificate that TLS has checked names a user.

    Attributes:
        users, tokens, policy: those in force.
        version: grows with each change of them.
    """

    def __init__(
        self,
        new_nonce: Callable[[], bytes],
        wall_ms: Callable[[], int],
        key: bytes | None = None,
        takes_certificates: bool = False,
    ) -> None:
        self._new_nonce = new_nonce
        self._wall_ms = wall_ms
        self._key = key
        self._takes_certificates = takes_certificates
        self.users: Users | None = None
        self.tokens: TokenKeys | None = None
        self.policy = Policy()
        self.version = 0

    @property
    def asks(self) -> bool:
        """Whether anybody has to log in."""
        return self.users is not None or self.tokens is not None or self._takes_certificates

    def set_users(self, users: Users) -> None:
        """Sets the password file's content; a user who is missing in it is no longer known."""
        self.users = users
        self.version += 1

    def set_tokens(self, tokens: TokenKeys) -> None:
        """Sets the keys that check tokens. Connected clients stay until their tokens end."""
        self.tokens = tokens
        self.version += 1

    def set_acl(self, acl: Acl) -> None:
        """Sets the rules, also for connected clients."""
        self.policy = Policy(acl)
        self.version += 1

    def still(self, identity: Identity) -> bool:
        """Whether an identity that was proved before still counts: its user is there, its token has not ended."""
        if identity.until_s * 1000 <= self._wall_ms():
            return False
        if identity.how not in (BY_SCRAM, PASSWORD, SIGNATURE):
            return True
        return self.users is not None and identity.user in self.users.by_name

    def claimed(self, user: str, how: str) -> Identity:
        """The user in the audit log for a failed login: the claimed one if it exists, else none, because the name may
        be a password in the wrong field."""
        return Identity(user, how) if self.users is not None and user in self.users.by_name else UNPROVEN

    # ------------------------------------------------------------ exchanges

    def of_certificate(self, name: str, ends_s: float) -> Identity:
        """The identity of a certificate that TLS has checked and that ends at a time, in seconds since 1970.
        ``UNPROVEN`` where certificates do not count, or this one no longer does."""
        identity = Identity(name, BY_CERTIFICATE, ends_s)
        return identity if name and self._takes_certificates and self.still(identity) else UNPROVEN

    def begin(self, mechanism: str, is_private: bool = True) -> Exchange | Denied:
        """A new login by a mechanism of ``penstock/protocol/logins.py``.

        Args:
            mechanism: its name.
            is_private: whether what the peer sends cannot be overheard: TLS, or this machine.
        """
        if mechanism == SCRAM and self.users is not None:
            return _Scram(ScramExchange(self._scram_keys, self._new_nonce().hex()))
        if mechanism == TOKEN and self.tokens is not None:
            return _Token(self) if is_private else Denied(EAVESDROPPED)
        if mechanism == CLUSTER_KEY:
            return _ClusterKey(self._key, self._new_nonce()) if self._key else _NoKey()
        return Denied(NO_MECHANISM)

    def read_token(self, token: bytes) -> Identity | Unfit:
        """The user of a token, or the reason why it is invalid."""
        now_ms = self._wall_ms()
        holder = self.tokens.read(token, now_ms) if self.tokens is not None else Unfit(NO_MECHANISM)
        if isinstance(holder, Unfit):
            return holder
        until_s = now_ms / 1000 + holder.left_s if math.isfinite(holder.left_s) else math.inf
        return Identity(holder.user_name, BY_TOKEN, until_s)

    def _scram_keys(self, user: str) -> ScramKeys:
        """A user's keys, or a decoy's for an unknown user or one without keys. Both take the same time."""
        assert self.users is not None
        decoy, found = self.users.decoy(user), self.users.by_name.get(user)
        assert decoy.scram is not None
        return decoy.scram if found is None or found.scram is None else found.scram


class _Scram:
    def __init__(self, exchange: ScramExchange) -> None:
        self._exchange = exchange

    @property
    def claimed(self) -> str:
        return self._exchange.user

    def receive(self, data: bytes) -> Step:
        step = self._exchange.receive(data)
        if isinstance(step, Challenge | Denied):
            return step
        return Known(Identity(step.user_name, BY_SCRAM), step.data)


class _Token:
    claimed = ""  # what a token says counts only if it is signed

    def __init__(self, authority: Authority) -> None:
        self._authority = authority

    def receive(self, data: bytes) -> Step:
        found = self._authority.read_token(data)
        return Denied(found.cause) if isinstance(found, Unfit) else Known(found)


class _NoKey:
    """A cluster without a key: services are taken as whatever else comes."""

    claimed = ""

    def receive(self, data: bytes) -> Step:
        return Known(Identity())


class _ClusterKey:
    claimed = ""  # a service is no user

    def __init__(self, key: bytes, nonce: bytes) -> None:
        self._key = key
        self._nonce = nonce
        self._client_nonce = b""
        self._name = ""
        self._is_over = False

    def receive(self, data: bytes) -> Step:
        if self._is_over:
            return Denied(MALFORMED)
        if not self._client_nonce:
            return self._begin(data)
        self._is_over = True
        wanted = service_proof(self._key, self._client_nonce, self._nonce, self._name)
        if not hmac.compare_digest(wanted, data):
            return Denied(WRONG_PROOF)
        return Known(
            Identity(self._name, SERVICE), server_proof(self._key, self._client_nonce, self._nonce, self._name)
        )

    def _begin(self, data: bytes) -> Step:
        nonce, name = data[:NONCE_BYTES], data[NONCE_BYTES:]
        try:
            self._name = name.decode()
        except UnicodeDecodeError:
            self._name = ""
        if (
            len(nonce) < NONCE_BYTES
            or not 0 < len(name) <= NAME_BYTES_MAX
            or not (self._name and self._name.isprintable())
        ):
            self._is_over = True
            return Denied(MALFORMED)
        self._client_nonce = nonce
        return Challenge(self._nonce)
