"""What a broker says of itself."""

from __future__ import annotations

from broker.about import AboutBroker
from broker.kernel.handler import handlers_of
from broker.kernel.outcomes import Now
from penstock.protocol.requests.servers import BrokerFigures, Ping, ReadFigures, ServerInfo
from penstock.version import VERSION


def test_it_says_its_name_and_the_figures_of_now() -> None:
    figures = {"a": 1.0}
    table = handlers_of((AboutBroker("x", lambda: figures),))
    said = table[Ping](Ping(), 1.0, 2_000)
    assert isinstance(said, Now)
    assert said.result == ServerInfo("broker", "x", VERSION, 2_000)
    figures["b"] = 2.5
    said = table[ReadFigures](ReadFigures(), 1.0, 2_000)
    assert isinstance(said, Now)
    assert said.result == BrokerFigures(("a", "b"), (1.0, 2.5))
