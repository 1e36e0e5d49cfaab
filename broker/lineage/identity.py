"""Fold of the log's identity: a random id that the first start of a data folder writes into its log.

Offsets and positions have a meaning in one log only. Clients that store them elsewhere store the id beside them and
send it along. So a wiped or replaced data folder is noticed, however much was stored since.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from broker.kernel.fold import fact_of, packed
from broker.store.records import NO_CHANGE, Change, Stored
from penstock.errors import LogReplaced

TOPIC: Final = "%sys%identity"


class Identity:
    """The id of one log.

    Attributes:
        log_id: 32 hexadecimal digits; empty in a log that has none yet.
    """

    KEY: Final = "identity"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = 0

    def __init__(self) -> None:
        self.log_id = ""

    @staticmethod
    def fact(log_id: str, replaces: str = "") -> list[Any]:
        """Body of the record that names the log. ``replaces``: the id that a restored copy had until then."""
        return [log_id, replaces] if replaces else [log_id]

    def check(self, log_id: str, what: str) -> None:
        """Raises ``LogReplaced`` if ``what`` is of another log. An empty id is any log's."""
        if log_id and self.log_id and log_id != self.log_id:
            raise LogReplaced(f"{what} is of log {log_id}, and this broker has log {self.log_id} now")

    def apply(self, record: Stored) -> Change:
        """The first record counts, and each that names the id which it replaces."""
        log_id, *replaces = fact_of(record)
        if not self.log_id or replaces == [self.log_id]:
            self.log_id = str(log_id)
        return NO_CHANGE

    def freeze(self) -> Iterator[bytes]:
        return packed(self.log_id)

    def restore(self, snapshot: str | None) -> None:
        self.log_id = snapshot or ""
