"""Commands to devices in all ways of services: in transactions, delayed, chosen by a filter, failed and retried."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.mqtt.packets import Connack, Connect, Puback, Publish, Subscribe, Subscription
from gateway.mqtt.properties import Properties
from node.command import root
from penstock import Message, device_message
from penstock.blocking import Admin, Consumer, Producer, bootstrap
from penstock.protocol.addresses import split_address
from penstock.protocol.batches import decode_queue
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.filters import OpenedFilters, OpenFilters
from penstock.protocol.requests.messages import Pull, Pulled
from penstock.world import RealClock
from tests.endtoend import lines
from tests.node.running import RunningSystem
from tests.patience import poll

pytestmark = pytest.mark.endtoend


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningSystem]:
    file = tmp_path / "penstock.toml"
    file.write_text("[gateway]\nfilter_lease_s = 3\n")  # a gateway hears of traced topics in a third of that
    system = RunningSystem(tmp_path / "data", file)
    yield system
    system.stop()


class Device(lines.Device):
    """The device ``d7``: a connection of its lasting session. Without filters it comes back to it."""

    def __init__(self, system: RunningSystem, *filters: str) -> None:
        super().__init__(split_address(system.addresses.mqtt), 5)
        kept = Properties(session_expiry_interval=600)
        self.send(Connect("d7", keep_alive_s=60, level=5, clean_start=bool(filters), properties=kept))
        assert isinstance(self.next(), Connack)
        if filters:
            self.send(Subscribe(1, tuple([Subscription(one, 1) for one in filters])))
            self.next()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def receive(self) -> Publish:
        """The next command."""
        packet = self.next()
        assert isinstance(packet, Publish)
        return packet

    def acknowledge(self, command: Publish) -> None:
        self.send(Puback(command.packet_id))

    def work(self) -> bytes:
        """Carries the next command out."""
        command = self.receive()
        self.acknowledge(command)
        return command.payload


def lag(system: RunningSystem) -> tuple[int, int]:
    """Of the device's session: how many messages are on their way to it, and how many wait."""
    told = CliRunner().invoke(root, ["--server", system.addresses.namesrv, "session", "list", "--json"])
    [row] = [json.loads(line) for line in told.stdout.splitlines()]
    return row["on_way"], row["waiting"]


def wait_for(found: Callable[[], Any], wanted: Any) -> None:
    poll(f"{wanted}", found, wanted.__eq__)


def test_a_command_in_a_transaction_reaches_its_device_after_the_commit_and_never_without(
    running: RunningSystem,
) -> None:
    both = [device_message("d7", b"open"), Message("", b"25", mqtt_topic="plant/d7/set", qos=1)]
    with (
        Device(running, "$p2p/d7", "plant/d7/#") as device,
        Producer(servers=running.addresses.namesrv, group="operators") as producer,
    ):
        with producer.transaction(both):
            producer.send_to_device("d7", b"meanwhile")
            assert device.work() == b"meanwhile", "the transaction has not committed"
        assert sorted([device.work(), device.work()]) == [b"25", b"open"]
        with producer.transaction([device_message("d7", b"burst")]) as block:
            block.rollback()
        with pytest.raises(ValueError, match="no"), producer.transaction("", b"burst", mqtt_topic="plant/d7/set"):
            raise ValueError("no")
        producer.send_to_device("d7", b"last")
        assert device.work() == b"last"


def test_a_delayed_command_reaches_its_device_when_it_is_due_and_a_cancelled_one_never(running: RunningSystem) -> None:
    clock = RealClock()
    with Device(running, "$p2p/d7") as device, Producer(servers=running.addresses.namesrv) as producer:
        due_ms = clock.wall_ms() + 400
        producer.send_to_device("d7", b"later", delay=0.4)
        producer.cancel(producer.send_to_device("d7", b"never", delay=0.2))
        producer.send_to_device("d7", b"now")
        assert device.work() == b"now"
        assert device.work() == b"later"
        assert clock.wall_ms() >= due_ms


def test_a_native_consumer_reads_the_queue_of_any_filter_through_a_selector(running: RunningSystem) -> None:
    with bootstrap(running.addresses.namesrv) as routes, Producer(servers=running.addresses.namesrv) as producer:
        link = routes.link(routes.brokers()[0].address)
        [opened] = link.ask(OpenFilters("audit", ("plant/+/set",)), OpenedFilters).opened
        for number, kind in enumerate(("set", "get", "set")):
            command = Message("", b"%d" % number, mqtt_topic=f"plant/d{number}/set", properties={"kind": kind})
            producer.send_many([command, Message("", b"other", mqtt_topic="plant/d7/got")])
        wanted: list[tuple[str, bytes]] = []
        offset = opened.offset
        while len(wanted) < 2:
            pulled = link.ask(Pull(opened.queue, offset, wait_s=1.0, filter="kind = 'set'"), Pulled)
            queue = MessageQueue("broker-a", opened.queue, 0)
            wanted += [(one.name, one.body) for one in decode_queue(pulled.count, pulled.body, queue, pulled.checksum)]
            offset = pulled.next
        assert wanted == [("plant/d0/set", b"0"), ("plant/d2/set", b"2")]


def test_a_command_that_failed_is_in_the_sessions_lag_until_its_retry_is_acknowledged(running: RunningSystem) -> None:
    """It fails at its device, which goes without an acknowledgement, and at a service, whose dead letter goes on."""
    servers = running.addresses.namesrv
    with Producer(servers=servers) as producer, Device(running, "$p2p/d7") as device:
        producer.send_to_device("d7", b"open")
        assert device.receive().payload == b"open"
        wait_for(lambda: lag(running), (1, 0))
    wait_for(lambda: sum(lag(running)), 1)
    with Consumer("operators", "$p2p", servers=servers, start="earliest", attempts_max=2) as consumer:
        seen: list[int] = []
        while seen != [0, 1]:
            for message in consumer.poll(1):
                seen.append(message.attempts)
                consumer.nack(message, 0, reason="not allowed yet")
            consumer.commit()
    assert sum(lag(running)) == 1, "retries of a group are none of the device's"
    with Admin(servers) as admin:
        assert [one.topic for one in admin.redrive("operators", all_groups=True)] == ["%24p2p"]
    wait_for(lambda: sum(lag(running)), 2)
    with Device(running) as again:
        first, second = again.receive(), again.receive()
        assert [(one.payload, one.dup) for one in (first, second)] == [(b"open", True), (b"open", False)]
        wait_for(lambda: lag(running), (2, 0))
        again.acknowledge(first)
        wait_for(lambda: lag(running), (1, 0))
        again.acknowledge(second)
        wait_for(lambda: lag(running), (0, 0))


def test_the_trace_of_a_command_says_when_its_device_had_it(running: RunningSystem) -> None:
    servers = running.addresses.namesrv
    with Admin(servers) as admin, Producer(servers=servers) as producer, Device(running, "$p2p/d7") as device:
        producer.send_to_device("d7", b"first")
        assert device.work() == b"first"
        admin.change_topic("$p2p", trace_every=1)

        def acknowledged() -> list[str]:
            """By whom, after a gateway that has heard of the trace."""
            id = producer.send_to_device("d7", b"traced").id
            assert device.work() == b"traced"
            poll("its delivery", lambda: admin.trace(id), lambda seen: "delivered" in [row.event for row in seen])
            return [row.who for row in admin.trace(id) if row.event == "acknowledged"]

        wait_for(acknowledged, ["d7"])
