"""An operator drains a gateway: its clients are sent to another server, so many a second, and no new ones come in.

MQTT 5 clients are told 0x9C and the Server Reference (MQTT 5, 4.11), older ones are closed. Their wills are published
after their delay, as for any connection that the server closes; their sessions are where they always are, so that the
next gateway has them. Time comes with ``tick``.
"""

from __future__ import annotations

from typing import Final

from gateway.mqtt.reason_codes import ReasonCode, Told
from gateway.reception import Reception

ELSEWHERE: Final = Told(ReasonCode.USE_ANOTHER_SERVER, "this gateway is being drained")


class Drain:
    """Whether a gateway drains, and how far it has come."""

    def __init__(self, reception: Reception, per_s: int) -> None:
        self._reception = reception
        self._per_s = per_s
        self._began_at = 0.0
        self._passed = 0
        self.is_on = False
        self.sent_away = 0

    @property
    def has_moved(self) -> bool:
        """Whether its clients are refused for good."""
        return self._reception.settings.has_moved

    def begin(self) -> None:
        """From now on nobody is let in, and those who are here go."""
        if not self.is_on:
            self.is_on = True
            self._began_at = self._reception.rounds.now
            self._reception.turns_away = ELSEWHERE

    def tick(self, now: float) -> None:
        """Sends away as many as the time since the last call allows; to be called about twice a second."""
        if not self.is_on:
            return
        count = int((now - self._began_at) * self._per_s) - self._passed
        if count:
            self._passed += count
            for device in self._reception.admitted(count):
                self.sent_away += 1
                device.fail(ELSEWHERE)
