"""What every server answers, as the first peers said it."""

from __future__ import annotations

from penstock.protocol.requests import servers
from penstock.protocol.requests.servers import BrokerFigures, ChangeSetting, Ping, ReadFigures, ServerInfo
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    assert codes(servers) == {1: "Ping", 2: "Login", 90: "ReadFigures", 91: "ChangeSetting"}


def test_the_first_frames_still_mean_the_same() -> None:
    assert asked(1) == Ping()
    assert asked(91, "log_level", "debug") == ChangeSetting("log_level", "debug")
    assert answered(Ping, "broker", "b", "0.1") == ServerInfo("broker", "b", "0.1")
    assert answered(ReadFigures, ["a"], [1.5]) == BrokerFigures(("a",), (1.5,))
