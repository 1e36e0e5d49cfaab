"""Client ids: which may be used, by whom, and who takes one back from another user.

A session is one user's, and its client id with it, as long as it lasts. So the first user of an id keeps it, unless the
access rules give the id to another user: that user takes it back, also from a session that lasts for days. The other
user's session ends then; its owner by rule begins a new one and sees nothing of it. Nothing here waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from gateway.limits.quotas import Quotas
from gateway.login.auth import Authenticator, Identity
from gateway.mqtt.reason_codes import Reason, ReasonCode
from gateway.sessions.lasting import Client
from gateway.sessions.store import SessionStore
from gateway.settings import GatewaySettings
from penstock.world import Rng

_log: Final = logging.getLogger(__name__)


class ClientIds:
    """The rules for client ids at one gateway."""

    def __init__(
        self, settings: GatewaySettings, authenticator: Authenticator, home: SessionStore, quotas: Quotas, rng: Rng
    ) -> None:
        self._settings = settings
        self._authenticator = authenticator
        self._home = home
        self._quotas = quotas
        self._rng = rng

    def new(self) -> str:
        """An id that no session has (MQTT-3.1.3-7, 3.2.2-16): 64 random bits make sure of it."""
        return f"auto-{self._rng.getrandbits(64):016x}"  # auth.ASSIGNED_ID

    def unfit(self, client_id: str, *, takes_id: bool) -> Reason:
        """The reason code for an id that no client may use, 0 for others. ``takes_id``: a client without an id may get
        one."""
        if not client_id:  # (MQTT-3.1.3-7, -8) of 3.1.1; 3.1 has no empty ids
            takes_id = takes_id and self._settings.empty_client_ids
            return 0 if takes_id else ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        if len(client_id.encode()) > self._settings.client_id_bytes_max:
            return self._quotas.refuse("client_id_bytes_max")
        return 0 if client_id.isprintable() else ReasonCode.CLIENT_IDENTIFIER_NOT_VALID

    def is_kept_by(self, others: Iterable[Client | None], identity: Identity) -> bool:
        """Whether a connection of another user has the id, and keeps it."""
        return any(
            is_anothers(other, identity)
            and other is not None
            and other.identity is not None
            and not self._authenticator.takes_back(identity, other.identity.user_name)
            for other in others
        )

    def ask_back(self, identity: Identity, on_answer: Callable[[str], None]) -> None:
        """The home keeps the session of this id for another user. ``on_answer`` gets that user's name if this one may
        take the id, else the empty string."""

        def answered(user_name: str) -> None:
            is_owner = bool(user_name) and self._authenticator.takes_back(identity, user_name)
            if is_owner:
                _log.warning(
                    "client id %r: the access rules give it to user %r; the session of user %r ends",
                    identity.client_id,
                    identity.user_name,
                    user_name,
                )
            on_answer(user_name if is_owner else "")

        self._home.find_user(identity.client_id, answered)


def is_anothers(device: Client | None, identity: Identity) -> bool:
    """Whether a connection is another user's. An anonymous connection has no user."""
    holder = device.identity if device is not None else None
    return holder is not None and holder.user_name not in ("", identity.user_name)
