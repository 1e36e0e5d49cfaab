"""``penstock client`` where no device ever came; with devices it is in tests/node/test_session_command.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


def test_without_a_device_there_is_no_home_to_ask(penstock: Penstock) -> None:
    for command in (("list",), ("disconnect", "d7", "--yes"), ("watch", "d7")):
        refused = penstock("client", *command)
        assert (refused.exit_code, "no device has connected yet" in refused.stderr) == (3, True)
    refused = penstock("client", "disconnect", "d7", stdin=b"n\n")
    assert (refused.exit_code, "Disconnect d7?" in refused.stderr) == (2, True)


def test_a_message_for_a_device_is_stored_now_or_later(penstock: Penstock, rows: Rows) -> None:
    assert [row["delayed"] for row in rows("client", "send", "d7", "on")] == [False]
    assert [row["delayed"] for row in rows("client", "send", "d7", "--delay", "1h", stdin=b"off")] == [True]
    assert "is delivered in 1h" in penstock("client", "send", "d7", "x", "--delay", "1h").stdout
    assert [(row["body"], row["mqtt_topic"]) for row in rows("consume", "$p2p", "--end")] == [("on", "$p2p/d7")]
    assert "cannot be part of a name" in penstock("client", "send", "a/b", "on").stderr
