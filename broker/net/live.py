"""Requests of operators that change a broker's settings while it runs, whether it leads its log or not."""

from __future__ import annotations

from broker.kernel.handler import handles
from broker.kernel.outcomes import Now, Outcome
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.servers import ChangeSetting
from penstock.service.live_settings import LiveSettings
from penstock.service.native_journal import NativeJournal


class LiveRequests:
    """Changes of one broker's settings. ``connection_log``: as it begins.

    Attributes:
        journal: the log of its connections.
    """

    def __init__(self, connection_log: str) -> None:
        self.journal = NativeJournal("the broker", connection_log)
        self._settings = LiveSettings(self.journal.change, connection_log)

    @handles(ChangeSetting)
    def change(self, request: ChangeSetting, now: float, now_ms: int) -> Outcome:
        """Changes one setting, if it is one of those that change."""
        self._settings.change(request.name, request.value)
        return Now(Done())
