"""The outcome of a send, as a value. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.client.sending import Receipt
from penstock.client.ways import DelayedReceipt
from penstock.errors import PenstockError, SendManyError


class Status(StrEnum):
    """The status of a sent message."""

    STORED = "stored"
    NOT_STORED = "not stored"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a message that was sent.

    Attributes:
        status: ``STORED``, ``NOT_STORED``, or ``UNKNOWN``: it may be stored.
        receipt: where it is stored, or its timer; else ``None``.
        error: why it is not stored for certain; else ``None``.
    """

    status: Status
    receipt: Receipt | DelayedReceipt | None = None
    error: PenstockError | None = None

    @property
    def level(self) -> str:
        """The level that it has reached: ``cache`` or ``disk``; empty where it is not stored for certain."""
        if self.receipt is None:
            return ""
        return self.receipt.level if isinstance(self.receipt, Receipt) else "disk"


def outcome_of(what: object) -> Outcome:
    """The outcome of a receipt or an error."""
    if isinstance(what, Receipt | DelayedReceipt):
        return Outcome(Status.STORED, what)
    assert isinstance(what, PenstockError)
    return Outcome(Status.UNKNOWN if what.unknown else Status.NOT_STORED, None, what)


def outcomes_of(error: SendManyError) -> list[Outcome]:
    """The outcome of each message."""
    return [outcome_of(error.failures[at] if receipt is None else receipt) for at, receipt in enumerate(error.receipts)]
