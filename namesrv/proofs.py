"""What one connection of a name server has proved: that it is a certain broker, which knows the cluster's secret.

A name server with a secret takes registrations, heartbeats and goodbyes of a broker only from a connection that has
proved to be that broker. Each nonce is good for one proof of the connection that asked for it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.errors import NotAuthorized
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.routes import BrokerHeartbeat, Challenge, ProveBroker, RegisterBroker, UnregisterBroker
from penstock.service.cluster_secret import is_proof

_HINT: Final = "give the broker the cluster_secret_file of its name servers"


class Proofs:
    """Proofs that the peer of one connection has given.

    Args:
        secret: the cluster's; None: every peer may register.
        new_nonce: makes nonces that never repeat.
    """

    def __init__(self, secret: bytes | None, new_nonce: Callable[[], bytes]) -> None:
        self._secret = secret
        self._new_nonce = new_nonce
        self._nonce = b""
        self._proved: tuple[str, str] | None = None  # name and address

    def challenge(self) -> Challenge:
        """A nonce for the next proof; empty where no proof is asked for."""
        if self._secret is not None:
            self._nonce = self._new_nonce()
        return Challenge(self._nonce)

    def prove(self, request: ProveBroker) -> None:
        """Takes a proof. Raises ``NotAuthorized`` for a wrong one, after which earlier proofs are void."""
        if self._secret is None:
            return
        nonce, self._nonce, self._proved = self._nonce, b"", None
        if not nonce:
            raise NotAuthorized("a proof without a challenge, or a second one for the same", hint=_HINT)
        if not is_proof(request.proof, self._secret, nonce, request.broker, request.address):
            raise NotAuthorized(f"broker {request.broker!r} has another cluster secret", hint=_HINT)
        self._proved = (request.broker, request.address)

    def check(self, request: Request) -> None:
        """Raises ``NotAuthorized`` for a request that speaks for a broker that this connection has not proved to be."""
        if self._secret is None or not isinstance(request, RegisterBroker | BrokerHeartbeat | UnregisterBroker):
            return
        if self._proved != (request.broker, request.address):
            raise NotAuthorized(
                f"this connection has not proved to be broker {request.broker!r} at {request.address}", hint=_HINT
            )
