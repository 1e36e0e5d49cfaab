from __future__ import annotations

import trio
import trio.testing

from broker.registration import Registration
from penstock.errors import Unavailable
from penstock.link import Link, OnResult
from penstock.requests import (
    BrokerHeartbeat,
    CreateTopic,
    Done,
    HeartbeatReply,
    RegisterBroker,
    Request,
    UnregisterBroker,
)
from tests.broker.broker_rig import Rig

ADDRESS = "127.0.0.1:10911"


class NameServer:
    """A name server at the end of a link: notes what it is told; it may be away or forget."""

    def __init__(self) -> None:
        self.told: list[Request] = []
        self.away = False
        self.knows = True

    def submit(self, request: Request, on_result: OnResult) -> None:
        if self.away:
            on_result(Unavailable("nobody there"))
            return
        self.told.append(request)
        on_result(HeartbeatReply(self.knows) if isinstance(request, BrokerHeartbeat) else Done())

    def flush(self) -> None:
        """Everything was answered already."""

    def kinds(self) -> list[str]:
        return [type(request).__name__ for request in self.told]


class NameServers:
    """Links to several of them, by address."""

    def __init__(self, *addresses: str) -> None:
        self.by_address = {address: NameServer() for address in addresses}

    def link(self, address: str) -> Link:
        return self.by_address[address]


def registration(names: NameServers, rig: Rig) -> Registration:
    made = Registration(rig.settings, ADDRESS, rig.service, names)
    rig.service.on_routes_changed = made.topics_changed
    return made


async def test_it_registers_with_every_name_server_before_it_counts_as_started() -> None:
    names = NameServers("a:1", "b:2")
    rig = Rig(namesrv=("a:1", "b:2"))
    async with trio.open_nursery() as nursery:
        await nursery.start(registration(names, rig).run)
        told = [one.told[0] for one in names.by_address.values()]
        nursery.cancel_scope.cancel()
    assert told == [RegisterBroker("broker-a", ADDRESS, 0, 120.0, ())] * 2


async def test_a_name_server_that_is_away_holds_nobody_up_and_is_told_when_it_is_back() -> None:
    names = NameServers("a:1", "b:2")
    names.by_address["b:2"].away = True
    rig = Rig(namesrv=("a:1", "b:2"))
    async with trio.open_nursery() as nursery:
        await nursery.start(registration(names, rig).run)
        assert names.by_address["a:1"].kinds() == ["RegisterBroker"]
        names.by_address["b:2"].away = False
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert names.by_address["b:2"].kinds()[0] == "RegisterBroker"


async def test_the_lease_is_renewed_by_heartbeats_and_registered_anew_where_it_is_unknown() -> None:
    names = NameServers("a:1")
    rig = Rig(namesrv=("a:1",))
    server = names.by_address["a:1"]
    async with trio.open_nursery() as nursery:
        await nursery.start(registration(names, rig).run)
        await trio.sleep(rig.settings.register_every_s + 1)
        assert server.kinds() == ["RegisterBroker", "BrokerHeartbeat"]
        server.knows = False
        await trio.sleep(rig.settings.register_every_s)
        nursery.cancel_scope.cancel()
    assert server.kinds() == ["RegisterBroker", "BrokerHeartbeat", "BrokerHeartbeat", "RegisterBroker"]


async def test_a_new_topic_is_told_at_once() -> None:
    names = NameServers("a:1")
    rig = Rig(namesrv=("a:1",))
    async with trio.open_nursery() as nursery:
        await nursery.start(registration(names, rig).run)
        before = trio.current_time()
        rig.handle(CreateTopic("orders", 2))
        await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == before
        nursery.cancel_scope.cancel()
    newest = names.by_address["a:1"].told[-1]
    assert isinstance(newest, RegisterBroker)
    assert [(route.topic, route.queues) for route in newest.topics] == [("orders", 2)]


async def test_a_clean_stop_tells_every_name_server_that_can_be_told() -> None:
    names = NameServers("a:1", "b:2")
    rig = Rig(namesrv=("a:1", "b:2"))
    names.by_address["a:1"].away = True
    await registration(names, rig).leave()
    assert names.by_address["b:2"].told == [UnregisterBroker("broker-a", ADDRESS)]
