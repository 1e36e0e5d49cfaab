"""The consumer of a pipe ends when it has all messages, and says so if they do not come."""

from __future__ import annotations

import io
import sys

import anyio
import pytest

from loadtest.native import taker
from loadtest.native.taker import Taking
from loadtest.wires import Failed
from tests.loadtest.native.test_orders import order


def test_messages_that_do_not_come_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taker, "PATIENCE_S", 0.0)
    monkeypatch.setattr(taker, "LISTEN_S", 0.0)
    monkeypatch.setattr(taker.select, "select", lambda *_: ([sys.stdin], [], []))
    monkeypatch.setattr(sys, "stdin", io.StringIO("7\n"))
    taking = Taking(order())

    async def listen() -> None:
        await taking._listen(anyio.CancelScope())

    with pytest.raises(Failed, match="0 messages came of 7"):
        anyio.run(listen)
