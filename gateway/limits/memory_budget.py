"""The memory that all clients of a gateway use together: incomplete packets, unread output, and unstored messages.

The limits of one client do not bound these sums. They are checked now and then, so that the check costs next to
nothing; until then a gateway may hold somewhat more. Output and unstored messages are bounded by holding back: each
client may have its share, and loses nothing. Incomplete packets can only be dropped, with their clients: those that
hold most go first.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import Final, Protocol

from gateway.limits.quotas import Quotas
from gateway.mqtt.reason_codes import Reason
from gateway.settings import OUTPUT_BYTES_LEAST, GatewaySettings

LOOKS_PER_S: Final = 25_000
"""Number of connections that are checked in a second, each of them twice at most."""

_log: Final = logging.getLogger(__name__)


class Holding(Protocol):
    """A connection (``gateway.connections.device.Device``). ``unstored``: bytes of its records that no broker has
    answered for. ``owed``: bytes of what it waits for beside them."""

    unstored: int
    owed: int

    @property
    def unfinished(self) -> int:
        """Bytes of a packet that is not complete."""
        ...

    @property
    def untaken(self) -> int:
        """Bytes of output that it has not taken."""
        ...

    def fail(self, reason: Reason) -> None:
        """Closes it for a reason."""
        ...


class Lined(Protocol):
    """The lines of connections (``gateway.net.shard.Shard``)."""

    def limit_output(self, bytes_max: int) -> None:
        """Sets the bytes that each may leave untaken."""
        ...


class MemoryBudget:
    """The bytes that all connections together may hold, and the part of them that each may.

    Attributes:
        unfinished, untaken, unstored: bytes of all connections, when they were last looked at.
        output_bytes_max, unstored_bytes_max: what each client may have for now.
    """

    def __init__(self, settings: GatewaySettings, quotas: Quotas, shards: Sequence[Lined]) -> None:
        self._most = settings.held_bytes_max
        self._settings = settings
        self._quotas = quotas
        self._due = 0.0
        self._is_short = False
        self._shards = shards
        self.unfinished = self.untaken = self.unstored = 0
        self.output_bytes_max = settings.output_bytes_max
        self.unstored_bytes_max = settings.unstored_bytes_max

    def tick(self, devices: Collection[Holding], now: float) -> None:
        """Looks, if it is due; to be called about twice a second."""
        if now < self._due:
            return
        self._due = now + len(devices) / LOOKS_PER_S
        unfinished = untaken = unstored = 0  # sums, not lists: there may be 100,000 of them, nearly all with nothing
        for client in devices:
            unfinished += client.unfinished
            untaken += client.untaken
            unstored += client.unstored + client.owed
        self.unfinished, self.untaken, self.unstored = unfinished, untaken, unstored
        settings = self._settings
        self.output_bytes_max, self.unstored_bytes_max = settings.output_bytes_max, settings.unstored_bytes_max
        if untaken > self._most:
            share = self._most // sum([client.untaken > 0 for client in devices])
            self.output_bytes_max = min(self.output_bytes_max, max(OUTPUT_BYTES_LEAST, share))
        if unstored > self._most:
            share = self._most // sum([client.unstored + client.owed > 0 for client in devices])
            self.unstored_bytes_max = min(self.unstored_bytes_max, max(1, share))
        for shard in self._shards:
            shard.limit_output(self.output_bytes_max)
        self._tell()
        if unfinished > self._most:
            self._make_room(
                sorted([(client.unfinished, client) for client in devices], key=itemgetter(0), reverse=True)
            )

    def _make_room(self, largest: Iterable[tuple[int, Holding]]) -> None:
        """Sends clients away until what the others have of incomplete packets is no more than it may be."""
        for size, client in largest:
            client.fail(self._quotas.refuse("held_bytes_max"))
            self.unfinished -= size
            if self.unfinished <= self._most:
                break

    def _tell(self) -> None:
        """The log says it once, and again when there has been room meanwhile."""
        is_short = max(self.unfinished, self.untaken, self.unstored) > self._most
        if is_short and not self._is_short:
            _log.warning(
                "clients have this gateway hold more than held_bytes_max, which is %d: %d bytes of incomplete packets, "
                "%d of output that is not taken, %d of messages that no broker has stored",
                self._most,
                self.unfinished,
                self.untaken,
                self.unstored,
            )
        self._is_short = is_short
