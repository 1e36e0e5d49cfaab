"""Settings of a broker that change while it runs."""

from __future__ import annotations

import logging

import pytest

from penstock.errors import InvalidRequest
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.servers import ChangeSetting
from penstock.service.frame_connection import Peer
from tests.broker.broker_rig import Rig


@pytest.mark.parametrize("leads", [True, False])
def test_the_two_logs_change_while_a_broker_runs_also_where_another_leads(
    leads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    caplog.handler.setLevel(logging.NOTSET)
    rig = Rig(connection_log="off")
    if not leads:
        rig.lead.step_down()
        rig.lead.follow(rig.store)
    journal = rig.lead.live.journal
    assert rig.ask(ChangeSetting("log_level", "info")) == Done()
    assert logging.getLogger().level == logging.INFO
    journal.connected(Peer(1, "192.0.2.1:5"), 0.0)
    assert rig.ask(ChangeSetting("connection_log", "on")) == Done()
    journal.connected(Peer(2, "192.0.2.2:5"), 0.0)
    for name in ("connection_log", "log_level"):
        assert rig.ask(ChangeSetting(name, "")) == Done()
    assert logging.getLogger().level == logging.WARNING
    journal.connected(Peer(3, "192.0.2.3:5"), 0.0)
    assert [one.getMessage() for one in caplog.records] == [
        "log_level is info now, until the next start",
        "connection_log is on now, until the next start",
        "connected from 192.0.2.2:5 to the broker",
        "connection_log is off now, its own again",
        "log_level is warning now, its own again",
    ]


@pytest.mark.parametrize("name", ["data", "acl_file", "retention_s", "__class__", ""])
def test_no_other_setting_changes(name: str) -> None:
    refused = Rig().ask(ChangeSetting(name, "/etc/passwd"))
    assert isinstance(refused, InvalidRequest)
    assert str(refused) == f"{name!r} does not change while a server runs; connection_log, log_level do"


def test_a_value_is_one_of_those_that_the_setting_has(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    rig = Rig()
    for name, value in (("log_level", "all"), ("log_level", "10"), ("connection_log", "yes")):
        refused = rig.ask(ChangeSetting(name, value))
        assert isinstance(refused, InvalidRequest)
        assert "it is one of " in str(refused)
    assert (logging.getLogger().level, caplog.records) == (logging.WARNING, [])
