"""A broker and its name servers, on a simulated network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import broker.net.registration
import broker.net.server
import broker.topics.fold
import namesrv.server
from broker.net.registration import Rank, Registration
from broker.net.running import RunningBroker
from broker.settings import BrokerSettings
from namesrv.settings import NamesrvSettings
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import NoRoute, PenstockError
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, Route
from penstock.protocol.requests.topics import CreateTopic, DeleteTopic
from penstock.service.frame_server import Peer
from tests.broker.broker_rig import Rig
from tests.simulation.disk import SimDisk
from tests.simulation.network import HOST
from tests.simulation.running import Simulation, simulate

NAMES = ("10.0.0.1", "10.0.0.2")
BROKER, CLIENT, OTHER = "10.0.0.3", "10.0.0.4", "10.0.0.5"
SERVERS = tuple(f"{host}:9876" for host in NAMES)
SECRET = b"a secret of the cluster, 32 bytes"


class Town:
    """Two name servers' hosts, a broker's, and somebody who asks."""

    def __init__(self, simulation: Simulation, nursery: trio.Nursery) -> None:
        self.sim = simulation
        self.nursery = nursery
        HOST.set(CLIENT)
        self.links = WireLinks(nursery, clock=simulation.clock, rng=simulation.rng("client"))

    async def start(self, host: str, run: Callable[..., Awaitable[Any]]) -> Any:
        token = HOST.set(host)
        try:
            return await self.nursery.start(run)
        finally:
            HOST.reset(token)

    async def start_names(self, host: str) -> trio.CancelScope:
        """A name server; the scope ends it without a word."""
        scope = trio.CancelScope()
        settings = NamesrvSettings(host=host, port=9876, insecure=True)

        async def live(*, task_status: trio.TaskStatus[None]) -> None:
            with scope:
                await namesrv.server.run(settings, self.sim.world(host), secret=SECRET, task_status=task_status)

        await self.start(host, live)
        return scope

    async def start_broker(
        self, host: str = BROKER, disk: SimDisk | None = None, secret: bytes | None = SECRET, **settings: Any
    ) -> RunningBroker:
        given: dict[str, Any] = {"host": host, "insecure": True, "namesrv": SERVERS, "segment_bytes": 1 << 16}
        chosen = BrokerSettings(data=Path("none"), **given, **settings)
        run = partial(broker.net.server.run, chosen, self.sim.world(host), disk=disk or SimDisk(), secret=secret)
        started: RunningBroker = await self.start(host, run)
        return started

    async def route(self, server: str, topic: str = "") -> tuple[BrokerRoute, ...]:
        return (await ask(self.links.link(server), QueryRoute(topic), Route)).brokers


def within(scenario: Callable[[Town], Awaitable[None]]) -> None:
    async def whole(simulation: Simulation) -> None:
        async with trio.open_nursery() as nursery:
            await scenario(Town(simulation, nursery))
            nursery.cancel_scope.cancel()

    simulate(1, whole)


def create(running: RunningBroker, topic: str) -> list[Result]:
    answers: list[Result] = []
    session = running.open_session(Peer(0, "here"))
    session.submit(CreateTopic(topic, 2), answers.append)
    session.flush()
    return answers


def delete(running: RunningBroker, topic: str) -> None:
    session = running.open_session(Peer(0, "here"))
    session.submit(DeleteTopic(topic), lambda result: None)
    session.flush()


def test_a_broker_that_accepts_is_known_to_every_name_server() -> None:
    async def scenario(town: Town) -> None:
        for host in NAMES:
            await town.start_names(host)
        await town.start_broker()
        for server in SERVERS:
            assert await town.route(server) == (BrokerRoute("broker-a", f"{BROKER}:10911", 0),)

    within(scenario)


def test_what_clients_are_told_to_use_may_be_another_address() -> None:
    async def scenario(town: Town) -> None:
        await town.start_names(NAMES[0])
        await town.start_broker(advertise="broker.example:7")
        assert await town.route(SERVERS[0]) == (BrokerRoute("broker-a", "broker.example:7", 0),)

    within(scenario)


def test_a_new_topic_is_told_at_once() -> None:
    async def scenario(town: Town) -> None:
        await town.start_names(NAMES[0])
        running = await town.start_broker()
        create(running, "t")
        await trio.sleep(0.5)
        assert await town.route(SERVERS[0], "t") == (BrokerRoute("broker-a", f"{BROKER}:10911", 2),)

    within(scenario)


def test_topics_that_are_too_many_for_one_request_are_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.net.registration, "PART", 3)
    topics = [f"t{number}" for number in range(10)]

    async def scenario(town: Town) -> None:
        first = await town.start_names(NAMES[0])
        running = await town.start_broker()
        for topic in topics[:8]:  # these come as what is new
            create(running, topic)
        await trio.sleep(0.5)
        assert [len(await town.route(SERVERS[0], topic)) for topic in topics] == [1] * 8 + [0] * 2
        first.cancel()
        await trio.sleep(1)
        await town.start_names(NAMES[0])  # here they come as all that there is
        await trio.sleep(5)
        assert [len(await town.route(SERVERS[0], topic)) for topic in topics] == [1] * 8 + [0] * 2
        for topic in topics[8:]:
            create(running, topic)
        await trio.sleep(0.5)
        assert [len(await town.route(SERVERS[0], topic)) for topic in topics] == [1] * 10

    within(scenario)


def test_a_name_server_that_is_down_holds_up_neither_the_start_nor_the_other_one() -> None:
    async def scenario(town: Town) -> None:
        await town.start_names(NAMES[1])
        town.sim.network.cut(BROKER, NAMES[0])
        await town.start_broker()
        assert trio.current_time() < 1.5
        assert len(await town.route(SERVERS[1])) == 1
        town.sim.network.heal(BROKER, NAMES[0])
        await town.start_names(NAMES[0])
        await trio.sleep(20)
        assert len(await town.route(SERVERS[0])) == 1

    within(scenario)


def test_a_name_server_that_begins_anew_is_told_as_soon_as_it_is_there() -> None:
    """Long before the next heartbeat, which is due in 30 s."""

    async def scenario(town: Town) -> None:
        names = await town.start_names(NAMES[0])
        await town.start_broker()
        await trio.sleep(5)
        names.cancel()
        await trio.sleep(3)
        await town.start_names(NAMES[0])
        await trio.sleep(3)
        assert await town.route(SERVERS[0]) == (BrokerRoute("broker-a", f"{BROKER}:10911", 0),)

    within(scenario)


def test_a_name_server_that_closes_every_connection_is_not_asked_without_a_pause() -> None:
    calls = 0

    async def closes(stream: trio.SocketStream) -> None:
        nonlocal calls
        calls += 1
        await stream.aclose()

    async def scenario(town: Town) -> None:
        token = HOST.set(NAMES[0])
        listeners = await trio.open_tcp_listeners(9876, host=NAMES[0])
        HOST.reset(token)
        town.nursery.start_soon(partial(trio.serve_listeners, closes, listeners))
        await town.start_broker()
        await trio.sleep(20)
        assert 1 < calls < 60

    within(scenario)


def test_a_name_server_that_is_lost_and_back_has_one_line_each_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "broker.net.registration"]

    async def scenario(town: Town) -> None:
        for host in NAMES:
            await town.start_names(host)
        running = await town.start_broker()
        assert told() == []
        town.sim.network.cut(BROKER, NAMES[0])
        await trio.sleep(300)
        [lost] = told()
        assert lost.startswith(f"name server {SERVERS[0]} lost: ")
        assert running.figures()["penstock_namesrv_away"] == 1
        town.sim.network.heal(BROKER, NAMES[0])
        await trio.sleep(60)
        assert told()[1:] == [f"name server {SERVERS[0]} answers again"]

    within(scenario)


def test_a_name_server_that_was_restarted_learns_the_broker_again_with_its_topics() -> None:
    async def scenario(town: Town) -> None:
        first = await town.start_names(NAMES[0])
        create(await town.start_broker(), "t")
        await trio.sleep(1)
        first.cancel()
        await trio.sleep(1)
        await town.start_names(NAMES[0])
        await trio.sleep(60)
        assert len(await town.route(SERVERS[0], "t")) == 1

    within(scenario)


def test_a_name_server_that_was_restarted_calls_no_topic_unknown_before_all_brokers_are_back() -> None:
    """Two brokers, of which one comes back late: its topics must not be made a second time at the other."""

    async def scenario(town: Town) -> None:
        first = await town.start_names(NAMES[0])
        await town.start_broker(OTHER, name="other")
        disk, nursery = SimDisk(), town.nursery
        async with trio.open_nursery() as town.nursery:
            create(await town.start_broker(disk=disk), "t")
            await trio.sleep(60)
            town.nursery.cancel_scope.cancel()
        town.nursery = nursery
        with pytest.raises(NoRoute, match="is at broker broker-a, which is away"):
            await town.route(SERVERS[0], "t")
        first.cancel()
        await town.start_names(NAMES[0])
        await trio.sleep(60)
        assert [one.broker for one in await town.route(SERVERS[0])] == ["other"]
        with pytest.raises(NoRoute, match="broker-a may have it, and did not come back yet"):
            await town.route(SERVERS[0], "t")
        await town.start_broker(disk=disk)
        await trio.sleep(5)
        assert len(await town.route(SERVERS[0], "t")) == 1
        assert await town.route(SERVERS[0], "unknown") == ()

    within(scenario)


def test_a_lease_is_renewed_for_as_long_as_the_broker_lives() -> None:
    async def scenario(town: Town) -> None:
        await town.start_names(NAMES[0])
        await town.start_broker()
        for _ in range(6):
            await trio.sleep(30)
            assert len(await town.route(SERVERS[0])) == 1

    within(scenario)


def test_a_clean_stop_is_told_and_a_death_shows_when_the_lease_ends() -> None:
    async def scenario(town: Town) -> None:
        await town.start_names(NAMES[0])
        async with trio.open_nursery() as town.nursery:
            await town.start_broker()
            town.nursery.cancel_scope.cancel()
        assert await town.route(SERVERS[0]) == ()
        async with trio.open_nursery() as town.nursery:
            await town.start_broker()
            town.sim.network.kill(BROKER)
            town.sim.network.cut(BROKER, NAMES[0])
            town.nursery.cancel_scope.cancel()
        assert len(await town.route(SERVERS[0])) == 1
        await trio.sleep(120)
        assert await town.route(SERVERS[0]) == ()

    within(scenario)


def test_a_broker_without_any_name_server_serves() -> None:
    async def scenario(town: Town) -> None:
        running = await town.start_broker()
        answers = create(running, "t")
        await trio.sleep(1)
        assert not isinstance(answers[0], PenstockError)

    within(scenario)


@pytest.mark.parametrize(
    ("secret", "remedy"),
    [
        (None, "give the broker the cluster_secret_file of its name servers"),
        (b"another secret, 32 bytes of it ..", "give it the cluster_secret_file of the server that refused it"),
    ],
)
def test_a_broker_without_the_clusters_secret_is_not_registered_and_its_log_says_what_to_do(
    secret: bytes | None, remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(town: Town) -> None:
        await town.start_names(NAMES[0])
        await town.start_broker(secret=secret, handover_wait_s=1.0)
        await trio.sleep(60)
        assert await town.route(SERVERS[0]) == ()
        told = [one.getMessage() for one in caplog.records if SERVERS[0] in one.getMessage()]
        [lost] = [one for one in told if one.startswith(f"name server {SERVERS[0]} lost")]
        assert remedy in lost

    within(scenario)


def test_a_broker_proves_itself_again_on_every_new_connection() -> None:
    async def scenario(town: Town) -> None:
        await town.start_names(NAMES[0])
        await town.start_broker()
        for _ in range(2):
            town.sim.network.cut(BROKER, NAMES[0])
            await trio.sleep(200)
            assert await town.route(SERVERS[0]) == ()
            town.sim.network.heal(BROKER, NAMES[0])
            await trio.sleep(60)
            assert len(await town.route(SERVERS[0])) == 1

    within(scenario)


def test_a_deleted_topic_is_told_at_once() -> None:
    async def scenario(town: Town) -> None:
        await town.start_names(NAMES[0])
        running = await town.start_broker()
        create(running, "t")
        await trio.sleep(0.5)
        assert await town.route(SERVERS[0], "t")
        delete(running, "t")
        await trio.sleep(0.5)
        assert await town.route(SERVERS[0], "t") == ()

    within(scenario)


def test_a_name_server_is_told_all_anew_where_what_has_changed_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.topics.fold, "CHANGED_MAX", 1)

    async def scenario(town: Town) -> None:
        await town.start_names(NAMES[0])
        running = await town.start_broker()
        for topic in "tuv":
            create(running, topic)
        await trio.sleep(0.5)
        delete(running, "t")
        delete(running, "u")
        await trio.sleep(0.5)
        assert [bool(await town.route(SERVERS[0], topic)) for topic in "tuv"] == [False, False, True]

    within(scenario)


def test_a_node_of_a_group_registers_anew_when_it_takes_the_lead_or_loses_it() -> None:
    """Two nodes with the name of one broker, each with a copy of its topics."""

    async def scenario(town: Town) -> None:
        await town.start_names(NAMES[0])
        ranks = {BROKER: Rank(3, False, 10, "log"), OTHER: Rank(3, True, 10, "log")}
        nodes: dict[str, Registration] = {}
        for host in ranks:
            rig = Rig()
            rig.submit(CreateTopic("orders", 2))
            settings = BrokerSettings(data=Path("none"), name="b", namesrv=SERVERS[:1])
            links = WireLinks(town.nursery, clock=town.sim.clock, rng=town.sim.rng(host))
            told = partial(ranks.__getitem__, host)
            nodes[host] = Registration(settings, f"{host}:10911", rig.state, links, SECRET, told)
            await town.start(host, nodes[host].run)

        async def route_is(led_by: str, epoch: int, *readers: str) -> None:
            wanted = BrokerRoute("b", f"{led_by}:10911", 2, True, epoch=epoch, readers=readers)
            await trio.sleep(5)
            assert await town.route(SERVERS[0], "orders") == (wanted,)

        await route_is(BROKER, 3, f"{OTHER}:10911")
        ranks[OTHER] = Rank(4, False, 10, "log")
        nodes[OTHER].topics_changed()
        await route_is(OTHER, 4)
        nodes[BROKER].topics_changed()  # it has not heard of its successor yet
        await route_is(OTHER, 4)
        assert not nodes[BROKER].away, "the name server is there: it refuses"
        ranks[BROKER] = Rank(4, True, 10, "log")
        nodes[BROKER].topics_changed()
        await route_is(OTHER, 4, f"{BROKER}:10911")

    within(scenario)
