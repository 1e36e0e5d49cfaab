"""Clients with passwords and their rights: the authenticator behind ``password_file`` and ``acl_file``.

Checking a password is slow on purpose. ``gateway/login/verifier.py`` does it, a bounded number at a time, for each
address in turn (``gateway/fairness.py``); when too many wait, a client gets 0x89 (try later). Correct credentials are
remembered for a while under a keyed hash, so that many reconnecting devices are admitted at once; a user whose line in
the file changes is forgotten. An unknown name takes as long as a wrong password and gets the same answer. SCRAM-SHA-256
(``penstock/access/scram_exchange.py``) costs microseconds and is answered at once. A check that ends in an error
refuses its client with 0x88.

Without an access file users may do everything but publish under ``$``, and anonymous clients come only from where
``anonymous`` says; with one, only what a rule allows. Pure: passwords, hashes and rules in, decisions out; never a
password in a log.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from gateway.fairness import FairQueue
from gateway.login.attempts import (
    CLIENT_ID,
    LIMIT,
    NO_CREDENTIALS,
    NO_KEYS,
    NOT_A_TOKEN,
    OTHER_USER,
    UNKNOWN_USER,
    WRONG_PASSWORD,
    WRONG_PROOF,
    Attempts,
)
from gateway.login.auth import (
    ASSIGNED_ID,
    BAD_CREDENTIALS,
    BAD_METHOD,
    Anonymous,
    Challenge,
    Credentials,
    Denied,
    Exchange,
    Identity,
    OnIdentity,
    Peer,
    Proven,
)
from gateway.mqtt.reason_codes import Reason
from penstock.access.acl import Acl
from penstock.access.passwords import PASSWORD_BYTES_MAX, Hashed, Users
from penstock.access.scram import ScramKeys, keyed
from penstock.access.scram_exchange import METHOD, ScramExchange
from penstock.access.tokens import TokenKeys, Unfit, is_token
from penstock.service.buckets import host_of

SERVER_UNAVAILABLE: Final = 0x88
SERVER_BUSY: Final = 0x89
REMEMBERED_MAX: Final = 100_000
_NO_PASSWORD: Final = b""
_NONCE_BYTES: Final = 18


class Check(NamedTuple):
    """A password to be checked against a hash, a decoy's if ``is_known`` is not set. ``digest``: under which it is
    remembered if it is right."""

    user: str
    client_id: str
    peer: Peer
    hashed: Hashed
    is_known: bool
    password: bytes
    digest: bytes
    done: OnIdentity

    def __repr__(self) -> str:
        return f"Check(user={self.user!r})"


class Access:
    """Satisfies ``gateway.login.auth.Authenticator``.

    Args:
        anonymous: which clients may come without credentials.
        waiting_max: number of checks that may wait; further clients get 0x89.
        remember_s: for how long credentials that were right are not checked again; 0: never remembered.
        key: secret of this process, for what is remembered.
        wake: called when there is something to check.
        clock: seconds that never go back.
        anonymous_at: the same at listeners that have a rule of their own, by name.
        attempts: counts and limits those that fail; by default without a limit.
    """

    def __init__(
        self,
        anonymous: str,
        waiting_max: int,
        remember_s: float,
        key: bytes,
        wake: Callable[[], None],
        clock: Callable[[], float],
        attempts: Attempts | None = None,
        anonymous_at: Mapping[str, str] | None = None,
    ) -> None:
        self._anonymous = Anonymous(anonymous, anonymous_at or {})
        self._remember_s = remember_s
        self._key = key
        self._wake = wake
        self._clock = clock
        self._users = Users({})
        self._has_users = False
        self._tokens: TokenKeys | None = None
        self._wall_ms: Callable[[], int] = lambda: 0
        self._nonces = 0
        self._acl: Acl | None = None
        self._waiting: FairQueue[str, Check] = FairQueue(1)
        self._waiting_max = waiting_max
        self._remembered: dict[bytes, tuple[Hashed, float]] = {}
        self.checked = 0
        self.remembered = 0
        self.attempts = attempts or Attempts(0, lambda limit: SERVER_BUSY, clock)
        self.busy = 0
        self.unchecked = 0
        self.proven = 0
        self.tokens = 0

    @property
    def refused(self) -> int:
        """How many were refused, for whatever cause."""
        return sum(self.attempts.refused.values())

    def set_users(self, users: Users) -> None:
        """The password file's content from now on; whose name is not in it any more is gone."""
        self._users = users
        self._has_users = True

    def set_tokens(self, keys: TokenKeys, wall_ms: Callable[[], int]) -> None:
        """Tokens count from now on as passwords, by these keys and this clock."""
        self._tokens = keys
        self._wall_ms = wall_ms

    def set_acl(self, acl: Acl) -> None:
        """The rules from now on, for connected clients too."""
        self._acl = acl

    # ------------------------------------------------------------ who

    def connect(self, shown: Credentials, done: OnIdentity) -> None:
        """See ``Authenticator``. A client with a checked certificate and no user name beside it is the user of its
        name; then a token counts, then a password, and then who may come without."""
        if shown.peer.certificate and shown.user_name is None:
            done(Identity(shown.client_id, shown.peer.certificate))
            return
        if self._tokens is not None and shown.password is not None and is_token(shown.password):
            done(self._holder(self._tokens, shown, shown.password))
        elif not self._has_users and self._tokens is not None and shown.password is not None:
            done(self._refused(NOT_A_TOKEN, shown))  # nothing but a token is a password here
        elif shown.user_name is None or not self._has_users:
            self._anonymous.connect(shown, self._counted(shown, done))
        else:
            self._ask(shown, shown.user_name, shown.password if shown.password is not None else _NO_PASSWORD, done)

    def _ask(self, shown: Credentials, user: str, password: bytes, done: OnIdentity) -> None:
        """Whether this is the user's password: known already, or to be checked."""
        hashed = self._users.by_name.get(user)
        digest = hmac.digest(self._key, b"%d:%s:%s" % (len(user), user.encode(), password), hashlib.sha256)
        known = self._remembered.get(digest)
        if known is not None and known[0] == hashed and known[1] > self._clock():
            self.remembered += 1
            done(Identity(shown.client_id, user, is_listed=True))
            return
        over = self.attempts.over(shown.peer)
        if over:
            done(over)
        elif len(password) > PASSWORD_BYTES_MAX:
            done(self._refused(WRONG_PASSWORD, shown, user))
        else:
            is_known, hashed = hashed is not None, hashed or self._users.decoy(user)
            check = Check(user, shown.client_id, shown.peer, hashed, is_known, password, digest, done)
            self._queue(host_of(shown.peer.address), check)
            self._wake()

    def _queue(self, address: str, check: Check) -> None:
        """Where too many wait the last one of the address that has most is turned away, or this one."""
        is_full = len(self._waiting) >= self._waiting_max
        turned_away = (self._waiting.crowd_out(address) or check) if is_full else None
        if turned_away is not check:
            self._waiting.add(address, check)
        if turned_away is not None:
            self.busy += 1
            turned_away.done(SERVER_BUSY)

    def _holder(self, keys: TokenKeys, shown: Credentials, token: bytes) -> Identity | Reason:
        """Who shows a token. A user name beside it must be the token's."""
        holder = keys.read(token, self._wall_ms())
        if isinstance(holder, Unfit):
            return self._refused(holder.cause, shown, holder.user_name, holder.detail)
        if shown.user_name not in (None, "", holder.user_name):
            return self._refused(OTHER_USER, shown, holder.user_name)
        self.tokens += 1
        return Identity(shown.client_id, holder.user_name, self._clock() + holder.left_s)

    def _counted(self, shown: Credentials, done: OnIdentity) -> OnIdentity:
        def counted(identity: Identity | Reason) -> None:
            if not isinstance(identity, Identity):
                self._refused(NO_CREDENTIALS, shown)
            done(identity)

        return counted

    def _refused(self, cause: str, shown: Credentials, user: str = "", detail: str = "") -> int:
        self.attempts.failed(cause, shown.peer, shown.client_id, user, detail)
        return BAD_CREDENTIALS

    def begin(self, method: str, client_id: str, peer: Peer, *, is_again: bool) -> Exchange | Reason:
        """See ``Authenticator``."""
        if method != METHOD or not self._has_users:
            return BAD_METHOD
        over = 0 if is_again else self.attempts.over(peer)
        if over:
            return over
        self._nonces += 1
        nonce = b64encode(keyed(self._key, b"nonce %d" % self._nonces)[:_NONCE_BYTES]).decode()
        return _Counted(self, ScramExchange(self._scram_keys, nonce), client_id, peer, is_again=is_again)

    def _scram_keys(self, user: str) -> ScramKeys:
        """A user's keys; a decoy's for an unknown user or one without keys. The decoy is made in any case, so that both
        take the same time."""
        decoy, found = self._users.decoy(user), self._users.by_name.get(user)
        assert decoy.scram is not None
        return decoy.scram if found is None or found.scram is None else found.scram

    def ended(self, outcome: Proven | Denied, user: str, client_id: str, peer: Peer) -> None:
        """An exchange is over; ``user``: who the client said it was."""
        if isinstance(outcome, Proven):
            self.proven += 1
            return
        found, cause = self._users.by_name.get(user), outcome.cause
        if cause == WRONG_PROOF and (found is None or found.scram is None):
            cause = UNKNOWN_USER if found is None else NO_KEYS
        self.attempts.failed(cause, peer, client_id, user if found is not None else "")

    def take(self) -> Check | None:
        """The check whose turn it is."""
        taken = self._waiting.take()
        if taken is None:
            return None
        address, check = taken
        self._waiting.charge(address, 1)
        return check

    def may_check(self, check: Check) -> bool:
        """Whether a check that was taken is to be done. If too many of its address have failed while it waited, its
        client is refused instead."""
        over = self.attempts.begin(check.peer)
        if over:
            check.done(over)
        return not over

    def checked_as(self, check: Check, right: bool) -> None:
        """The result of a check. The file may have changed meanwhile: then the old answer is
        void."""
        self.checked += 1
        current = self._users.by_name.get(check.user)
        if not right or current is None or current != check.hashed:
            cause, user = (WRONG_PASSWORD, check.user) if check.is_known else (UNKNOWN_USER, "")
            self.attempts.failed_check(cause, check.peer, check.client_id, user)
            check.done(BAD_CREDENTIALS)
            return
        self.attempts.proves_right(check.peer)
        if self._remember_s:
            self._remembered.pop(check.digest, None)  # the oldest stand first
            if len(self._remembered) >= REMEMBERED_MAX:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[check.digest] = (check.hashed, self._clock() + self._remember_s)
        check.done(Identity(check.client_id, check.user, is_listed=True))

    def left_unchecked(self, check: Check) -> None:
        """A check ended in an error: it is unknown whether the password is right."""
        self.unchecked += 1
        self.attempts.proves_right(check.peer)
        check.done(SERVER_UNAVAILABLE)

    def is_gone(self, identity: Identity) -> bool:
        """See ``Authenticator``."""
        return identity.is_listed and identity.user_name not in self._users.by_name

    def may_connect(self, identity: Identity, peer: Peer) -> bool:
        """See ``Authenticator``."""
        if self.may_stay(identity):
            return True
        self.attempts.failed(CLIENT_ID, peer, identity.client_id, identity.user_name)
        return False

    def may_stay(self, identity: Identity) -> bool:
        """See ``Authenticator``."""
        if self._acl is None or ASSIGNED_ID.fullmatch(identity.client_id):
            return True
        return self._acl.client(identity.user_name, identity.client_id).allowed

    def takes_back(self, identity: Identity, user_name: str) -> bool:
        """See ``Authenticator``."""
        acl, client_id = self._acl, identity.client_id
        if acl is None or not identity.user_name or ASSIGNED_ID.fullmatch(client_id):
            return False
        own = acl.client(identity.user_name, client_id)
        return own.allowed and own.line > 0 and not acl.client(user_name, client_id).allowed

    # ------------------------------------------------------------ what

    def may_publish(self, identity: Identity, name: str) -> bool:
        """See ``Authenticator``."""
        if not self._anonymous.may_publish(identity, name):
            return False
        return self._acl is None or self._acl.publish(identity.user_name, identity.client_id, name).allowed

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        """See ``Authenticator``."""
        if self._acl is None:
            return self._anonymous.may_subscribe(identity, filter)
        return self._acl.subscribe(identity.user_name, identity.client_id, filter).allowed

    def may_position(self, identity: Identity, name: str) -> bool:
        """See ``Authenticator``."""
        return self._acl is None or self._acl.position(identity.user_name, identity.client_id, name).allowed


class _Counted:
    """An exchange whose end is counted."""

    __slots__ = ("_access", "_client_id", "_exchange", "_is_again", "_peer")

    def __init__(self, access: Access, exchange: ScramExchange, client_id: str, peer: Peer, *, is_again: bool) -> None:
        self._access = access
        self._exchange = exchange
        self._client_id = client_id
        self._peer = peer
        self._is_again = is_again

    def receive(self, data: bytes) -> Challenge | Proven | Denied:
        if not self._is_again and self._access.attempts.over(self._peer):  # others have failed since it began
            return Denied(LIMIT)
        outcome = self._exchange.receive(data)
        if not isinstance(outcome, Challenge):
            self._access.ended(outcome, self._exchange.user, self._client_id, self._peer)
        return outcome
