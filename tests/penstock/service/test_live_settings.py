"""Which settings of a server change while it runs; ``tests/broker/net/test_live.py`` has each."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest
from penstock.service.live_settings import LiveSettings
from penstock.service.native_journal import NativeJournal


def test_a_refusal_is_short_whatever_is_asked_for() -> None:
    with pytest.raises(InvalidRequest) as caught:
        LiveSettings(NativeJournal("the broker", "off").change, "off").change("x" * 10_000, "y" * 10_000)
    assert len(caught.value.message) < 200
