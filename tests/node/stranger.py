"""What a stranger tries at a name server, which lets nobody without the cluster's secret."""

from __future__ import annotations

import pytest

from node.addresses import Addresses
from penstock.client.lasting_links import lasting_links
from penstock.client.wire_link import ask, call
from penstock.errors import NotAuthorized
from penstock.protocol.requests.routes import QueryRoute, RegisterBroker, Route, UnregisterBroker


async def check_refusals(addresses: Addresses) -> None:
    """A stranger neither ends nor takes the broker of a system."""
    async with lasting_links() as links:
        names = links.link(addresses.namesrv)
        [before] = (await ask(names, QueryRoute(""), Route)).brokers
        for request in [
            UnregisterBroker(before.broker, before.address),
            RegisterBroker(before.broker, before.address, 99, 60.0, ()),
            RegisterBroker("rogue", "127.0.0.1:1", 1, 60.0, ()),
        ]:
            with pytest.raises(NotAuthorized):
                await call(names, request)
        assert (await ask(names, QueryRoute(""), Route)).brokers == (before,)
