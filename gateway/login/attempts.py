"""Failed logins: counted by cause, logged, and limited for each address.

A client learns only that it was refused. Operators see the cause in the figures and, a bounded number of lines a
second, in the log. Neither contains a password, a token, a proof, or an unknown user name, because people type
passwords into the wrong field.

From an address with too many failed logins in the last minute no password or proof is checked until there were fewer.
Remembered credentials, certificates, tokens and connected clients are not affected. A password is counted when its
check begins, and the count is returned if it is right: so none is checked beyond the limit, however many wait. Pure but
for the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from gateway.login.auth import MQTT, Peer
from gateway.mqtt.reason_codes import Reason
from penstock.access.policy import Identity
from penstock.access.scram_exchange import CHANNEL_BINDING as CHANNEL_BINDING
from penstock.access.scram_exchange import MALFORMED as MALFORMED
from penstock.access.scram_exchange import WRONG_PROOF as WRONG_PROOF
from penstock.access.tokens import FLAWS
from penstock.service.audit import Audit
from penstock.service.buckets import Bucket, Buckets, host_of

NO_CREDENTIALS: Final = "no_credentials"
UNKNOWN_USER: Final = "unknown_user"
WRONG_PASSWORD: Final = "wrong_password"
NOT_A_TOKEN: Final = "not_a_token"
OTHER_USER: Final = "token_other_user"
NO_KEYS: Final = "no_scram_keys"
CLIENT_ID: Final = "client_id"
CAUSES: Final = (
    NO_CREDENTIALS,
    UNKNOWN_USER,
    WRONG_PASSWORD,
    NOT_A_TOKEN,
    OTHER_USER,
    *FLAWS,
    NO_KEYS,
    WRONG_PROOF,
    MALFORMED,
    CHANNEL_BINDING,
    CLIENT_ID,
)
_NO_GUESSES: Final = (NO_CREDENTIALS, CLIENT_ID)
LIMIT: Final = "address_failed_logins_per_min_max"
_LINES_PER_S: Final = 1.0
_LINES_AT_ONCE: Final = 10
_SHOWN_CHARACTERS: Final = 64

_log = logging.getLogger(__name__)


class Attempts:
    """The failed logins of a gateway.

    Attributes:
        refused: how many, by cause.

    Args:
        per_min_max: number of logins from each address that may fail in a minute; 0: no limit.
        refuse: counts one that is turned away at the limit, and gives the reason code.
        clock: seconds that never go back.
        audit: the audit log that keeps each.
    """

    def __init__(
        self,
        per_min_max: int,
        refuse: Callable[[str], Reason],
        clock: Callable[[], float],
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit
        self.refused = dict.fromkeys(CAUSES, 0)
        self._addresses = Buckets(per_min_max / 60, per_min_max)
        self._refuse = refuse
        self._clock = clock
        self._lines = Bucket(_LINES_PER_S, 0.0, _LINES_AT_ONCE)
        self._untold = 0

    def over(self, peer: Peer) -> Reason:
        """The reason code to turn a login from there away with, 0 if it may be tried."""
        has_one = self._addresses.has(host_of(peer.address), self._clock())
        return 0 if has_one else self._refuse(LIMIT)

    def begin(self, peer: Peer) -> Reason:
        """A password from there is to be checked: it counts as failed until it ``proves_right``. The reason code to
        refuse it with, 0 if it may be checked."""
        refusal = self.over(peer)
        if not refusal:
            self._addresses.spend(host_of(peer.address), self._clock())
        return refusal

    def proves_right(self, peer: Peer) -> None:
        """A check that has begun did not fail."""
        self._addresses.give_back(host_of(peer.address), self._clock())

    def failed_check(self, cause: str, peer: Peer, client_id: str, user: str = "") -> None:
        """A check that has begun failed. It is counted for the limit already."""
        self.refused[cause] += 1
        self._tell(cause, peer, client_id, user, "")

    def failed(self, cause: str, peer: Peer, client_id: str, user: str = "", detail: str = "") -> None:
        """A login has failed. ``user``: set only for a known user, or the one of a rightly signed token. ``detail``:
        more of the cause, for the log."""
        self.refused[cause] += 1
        if cause not in _NO_GUESSES:
            self._addresses.spend(host_of(peer.address), self._clock())
        self._tell(cause, peer, client_id, user, detail)

    def _tell(self, cause: str, peer: Peer, client_id: str, user: str, detail: str) -> None:
        if self._audit is not None:
            who = Identity(user, MQTT)
            self._audit.keep(who, peer.address, "Login", "", allowed=False, why=cause, client=client_id)
        if not self._lines.take(self._clock()):
            self._untold += 1
            return
        untold, self._untold = self._untold, 0
        _log.warning(
            "login refused: %s%s; %s, client id %r, from %s at %s%s",
            cause,
            f" ({detail})" if detail else "",
            f"user {user[:_SHOWN_CHARACTERS]!r}" if user else "no known user",
            client_id[:_SHOWN_CHARACTERS],
            peer.address,
            peer.listener,
            f"; {untold} more were not told" if untold else "",
        )
