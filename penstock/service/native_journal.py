"""The log of native connections: who connected, who disconnected, whose TLS handshake failed.

The settings are those of the gateway's connection log (``connection_log``), and so are the levels: INFO for connects
and disconnects, WARNING for failed handshakes. Logins are lines of the audit log. Pure but for the log.
"""

from __future__ import annotations

import logging
import ssl
from typing import Final

from penstock.service.frame_connection import Peer
from penstock.service.paced_lines import LOG_RATES, Kind, check_detail

_SHOWN_CHARACTERS: Final = 128

_log = logging.getLogger(__name__)


class NativeJournal:
    """The connection log of one native port. ``what``: who listens there, ``the broker``. ``detail``: a key of
    ``LOG_RATES``."""

    def __init__(self, what: str, detail: str) -> None:
        rate = LOG_RATES[detail]
        self._what = what
        self._connected = Kind(_log, "connected", logging.INFO, rate)
        self._disconnected = Kind(_log, "disconnected", logging.INFO, rate)
        self._failed = Kind(_log, "handshake failed", logging.WARNING, rate)

    def change(self, detail: str) -> None:
        """Another key of ``LOG_RATES`` counts from now on. Raises ``InvalidConfig``."""
        check_detail(detail)
        for kind in (self._connected, self._disconnected, self._failed):
            kind.change(LOG_RATES[detail])

    def connected(self, peer: Peer, now: float) -> None:
        """A connection can be served: with TLS, its handshake is done."""
        if self._connected.may_say(now):
            shown = f", certificate {_cut(peer.certificate)}" if peer.certificate else ""
            self._connected.say(f"from {peer.address} to {self._what}{shown}", address=peer.address, to=self._what)

    def disconnected(self, peer: Peer, user: str, stay_s: float, now: float) -> None:
        """The connection has ended. ``user``: the logged-in user, empty without one."""
        if self._disconnected.may_say(now):
            who = f"user {_cut(user)}, " if user else ""
            text = f"{who}from {peer.address} to {self._what}, after {stay_s:.1f} s"
            self._disconnected.say(text, address=peer.address, to=self._what, user=user or None)

    def handshake_failed(self, peer: Peer, cause: BaseException | None, now: float) -> None:
        """A TLS handshake has failed. A peer that just went away, as health checks do, has no line. ``cause``: ``None``
        if it took too long."""
        if isinstance(cause, ssl.SSLEOFError) or not self._failed.may_say(now):
            return
        why = "it took too long" if cause is None else getattr(cause, "reason", None) or str(cause)
        self._failed.say(f"from {peer.address} to {self._what}: {why}", address=peer.address, to=self._what, why=why)


def _cut(name: str) -> str:
    return repr(name[:_SHOWN_CHARACTERS])
