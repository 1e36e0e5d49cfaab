"""Messages as they are handed over for a broker: with their ids."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.client.preparation import Preparation
from penstock.client.sending import Outgoing
from penstock.protocol.message import Message
from penstock.protocol.requests.routes import BrokerRoute


def runs_at_broker(preparation: Preparation, messages: Sequence[Message], now_ms: int) -> list[Outgoing]:
    """Their runs, on the way to a broker."""
    made = preparation.runs(messages, now_ms)
    for one in made:
        one.broker = BrokerRoute("b", "h:1", 4)
        preparation.number(one)
    return made
