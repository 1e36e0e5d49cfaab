"""The settings of a running gateway that an operator changes: entries of the name servers' key-value store.

The gateway asks for them whenever it asks which brokers there are. Without an entry its own setting counts again; an
entry that it cannot take, as a newer name server may have, changes nothing and gets a line in the log. Pure but for the
log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from gateway.connections.journal import Journal
from gateway.publishing.spans import Spans
from gateway.settings import GatewaySettings
from penstock.errors import InvalidConfig
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.routes import GATEWAY_SETTINGS, ConfigEntries
from penstock.service.live_settings import share_of
from penstock.service.process_log import level_now, set_level

_log = logging.getLogger(__name__)


class LiveGatewaySettings:
    """The changeable settings of a gateway. ``spans``: None where it records no traces."""

    def __init__(self, settings: GatewaySettings, journal: Journal, spans: Spans | None) -> None:
        def sample(value: str) -> None:
            share = share_of(value)
            if spans is not None:
                spans.change_share(share)

        self._takers: Mapping[str, Callable[[str], None]] = {
            "connection_log": journal.change,
            "log_level": set_level,
            "trace_sample": sample,
        }
        self._own = {
            "connection_log": settings.connection_log,
            "log_level": level_now(),
            "trace_sample": str(settings.trace_sample),
        }
        self._now = dict(self._own)

    def take(self, told: Result) -> None:
        """Takes what a name server has answered."""
        if not isinstance(told, ConfigEntries):
            return
        said = {one.key: one.value for one in told.entries if one.namespace == GATEWAY_SETTINGS}
        for name, taker in self._takers.items():
            value = said.get(name, self._own[name])
            if value == self._now[name]:
                continue
            self._now[name] = value
            try:
                taker(value)
            except InvalidConfig as error:
                _log.warning("the name server's entry %s %s: %s", GATEWAY_SETTINGS, name, error.message)
            else:
                _log.warning("%s is %s now", name, value)
