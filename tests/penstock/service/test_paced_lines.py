"""Lines of a log at a rate."""

from __future__ import annotations

import logging

import pytest

from penstock.errors import InvalidConfig
from penstock.service.paced_lines import Kind, check_detail

LOG = logging.getLogger("penstock.paced")


def test_what_is_beyond_the_rate_is_counted_and_the_next_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG.name)
    kind = Kind(LOG, "connected", logging.INFO, (1.0, 2.0))
    for number in range(5):
        if kind.may_say(0.0):
            kind.say(f"number {number}", number=number)
    assert kind.may_say(1.0)
    kind.say("later")
    assert [one.getMessage() for one in caplog.records] == [
        "connected number 0",
        "connected number 1",
        "connected later; 3 more were left out before",
    ]
    assert vars(caplog.records[1])["penstock_fields"] == {"event": "connected", "number": 1}


def test_nothing_is_counted_where_no_line_would_be_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, LOG.name)
    for rate in ((1.0, 2.0), (0.0, 0.0)):
        kind = Kind(LOG, "connected", logging.INFO, rate)
        assert not kind.may_say(0.0)
        assert kind.untold == 0


def test_a_wrong_detail_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="connection_log is 'much'"):
        check_detail("much")
