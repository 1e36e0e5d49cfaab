"""Each event and each message has a place where the core takes it in."""

from __future__ import annotations

import typing

from broker.replica import core
from broker.replica.events import Event, Message


def test_the_core_takes_in_every_event_and_every_message() -> None:
    assert set(core._STEPS) == set(typing.get_args(Event))
    assert set(core._MESSAGES) == set(typing.get_args(Message))
