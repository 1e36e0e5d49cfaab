"""``penstock session`` against a real system."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.mqtt import codec
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)
from gateway.mqtt.properties import Properties
from gateway.mqtt.reader import PacketReader
from gateway.mqtt.reason_codes import ReasonCode
from node import session_command
from node.command import root
from node.mqtt_client import MqttClient
from penstock.blocking import Admin, Producer, bootstrap
from penstock.protocol.addresses import split_address
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import (
    Challenge,
    ProveBroker,
    QueryChallenge,
    RegisterBroker,
    TopicRoute,
    UnregisterBroker,
)
from penstock.protocol.requests.sessions import (
    HOME_TOPIC,
    RELEASED,
    ListSessions,
    OpenedSession,
    OpenSession,
    SavedSessions,
    SaveSessions,
    SessionSave,
)
from penstock.service.cluster_secret import broker_proof, keep_secret, read_secret
from tests.node.running import RunningSystem
from tests.patience import PATIENCE_S, POLL_S, poll
from tests.penstock.admin_scene import kill

pytestmark = pytest.mark.endtoend

Run = Callable[..., Result]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    return keep_secret(tmp_path / "data")


@pytest.fixture
def running(tmp_path: Path, secret: Path) -> Iterator[RunningSystem]:
    system = RunningSystem(tmp_path / "data", cluster_secret_file=str(secret))
    yield system
    system.stop()


@pytest.fixture
def penstock(running: RunningSystem) -> Run:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(root, ["--server", running.addresses.namesrv, *arguments])

    return run


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@contextmanager
def durable(system: RunningSystem, client_id: str, *subscriptions: Subscription) -> Iterator[None]:
    """A device with a session that outlives its connection, subscribed."""
    with socket.create_connection(split_address(system.addresses.mqtt), PATIENCE_S) as device:
        subscribe(device, client_id, subscriptions)
        yield


def subscribe(
    device: socket.socket, client_id: str, subscriptions: tuple[Subscription, ...], expiry_s: int = 600
) -> None:
    properties = Properties(session_expiry_interval=expiry_s)
    hello = Connect(client_id, keep_alive_s=60, level=5, properties=properties)
    reader = PacketReader(1 << 20)
    reader.level = 5
    for packet, answer in ((hello, Connack), (Subscribe(1, subscriptions), Suback)):
        device.sendall(codec.encode(packet, 5))
        got: list[Packet] = []
        while not got:
            got += reader.receive(device.recv(4096))
        assert isinstance(got[0], answer)


def packets(device: socket.socket, count: int) -> list[Packet]:
    """The next packets that come."""
    reader = PacketReader(1 << 20)
    reader.level = 5
    got: list[Packet] = []
    while len(got) < count:
        got += reader.receive(device.recv(4096))
    return got


def published(system: RunningSystem, name: str, *bodies: bytes) -> None:
    with MqttClient(system.addresses.mqtt) as client:
        for body in bodies:
            client.publish(name, body)


def follow_packets(penstock: Run, device: socket.socket) -> None:
    """An operator follows ``d7``, which asks for pings until it is."""
    is_over = threading.Event()

    def ping() -> None:
        while not is_over.wait(POLL_S):
            device.sendall(codec.encode(Pingreq(), 5))
            assert packets(device, 1) == [Pingresp()]

    with ThreadPoolExecutor(1) as threads:
        pinging = threads.submit(ping)
        try:
            seen = rows(penstock("client", "watch", "d7", "-n", "10", "--json"))
            lines = penstock("client", "watch", "d7", "-n", "10").stdout
        finally:
            is_over.set()
        pinging.result(PATIENCE_S)
    assert {(one["kind"], one["is_sent"]) for one in seen} == {("PINGREQ", False), ("PINGRESP", True)}
    assert "from PINGREQ" in lines
    assert "to   PINGRESP" in lines


def is_connected(penstock: Run, client: str) -> bool:
    found = rows(penstock("session", "list", "--json"))
    return [row["state"] for row in found if row["client"] == client] == ["connected"]


def wait_until_gone(penstock: Run) -> None:
    poll("d7 is not connected", lambda: is_connected(penstock, "d7"), lambda connected: not connected)


def wait_until_away(penstock: Run) -> None:
    """Until the session of ``d7`` is kept without a connection."""
    poll("the place of d7", lambda: rows(penstock("session", "show", "d7", "--json"))[0]["next"], is_known)
    wait_until_gone(penstock)


def is_known(place: object) -> bool:
    return place is not None


def test_a_running_gateway_takes_a_setting_from_the_name_servers(
    penstock: Run, caplog: pytest.LogCaptureFixture
) -> None:
    assert penstock("config", "gateways", "connection_log", "off").exit_code == 0
    poll("the gateway's line in the log", lambda: "connection_log is off now" in caplog.messages)


def test_what_waits_for_an_absent_session_is_told(running: RunningSystem, penstock: Run) -> None:
    wanted = (Subscription("plant/+", 1), Subscription("plant/a", 0), Subscription("$share/w/plant/#", 1))
    with durable(running, "d7", *wanted):
        pass
    wait_until_away(penstock)
    published(running, "plant/a", b"1", b"2", b"3")
    found = {row["client"]: row for row in rows(penstock("session", "list", "--json"))}
    row = found["d7"]
    told = {name: row[name] for name in ("user", "state", "gateway", "subscriptions", "on_way", "waiting")}
    assert told == {
        "user": None,
        "state": "away",
        "gateway": None,
        "subscriptions": 3,
        "on_way": 0,
        "waiting": 3,
    }
    assert 0 <= row["away_s"] <= 600 - row["ends_in_s"] <= 600
    assert "d7" in penstock("session", "list").stdout
    shown = {row["filter"]: row for row in rows(penstock("session", "show", "d7", "--json"))}
    assert list(shown) == ["plant/+", "plant/a", "$share/w/plant/#"]
    plain = shown["plant/+"]
    assert (plain["broker"], plain["waiting"], plain["end"] - plain["next"]) == ("broker-a", 3, 3)
    assert [shown[one]["waiting"] for one in ("plant/a", "$share/w/plant/#")] == [None, None]


def test_commands_of_all_kinds_wait_for_their_device_in_its_lag_and_only_that_one_may_have_them(
    running: RunningSystem, penstock: Run
) -> None:
    """Plain, delayed, and what was a dead letter of a service: for the device they are messages like any others."""
    with durable(running, "d7", Subscription("$p2p/d7", 1)):
        pass
    wait_until_away(penstock)
    servers = running.addresses.namesrv
    with Producer(servers=servers) as producer:
        producer.send_to_device("d8", b"not for d7")
        producer.send_to_device("d7", b"now")
        producer.send_to_device("d7", b"later", delay=0.05)
    kill(servers, b"again", name="$p2p/d7", topic="%24p2p")
    with Admin(servers) as admin:
        assert [one.error for one in admin.redrive("billing", all_groups=True)] == [None]

    def lag() -> tuple[int, int]:
        [row] = rows(penstock("session", "list", "--json"))
        return row["on_way"], row["waiting"]

    def wait_for_lag(wanted: tuple[int, int]) -> None:
        poll(f"{wanted} on their way and waiting", lag, wanted.__eq__)

    wait_for_lag((0, 4))  # the first of the two that were sent, and its copy behind the dead letter
    with socket.create_connection(split_address(running.addresses.mqtt), PATIENCE_S) as device:
        kept = Properties(session_expiry_interval=600)
        hello = Connect("d7", keep_alive_s=60, level=5, clean_start=False, properties=kept)
        device.sendall(codec.encode(hello, 5))
        got = packets(device, 5)
        assert isinstance(got[0], Connack)
        commands = [one for one in got[1:] if isinstance(one, Publish)]
        assert sorted(one.payload for one in commands) == [b"again", b"again", b"later", b"now"]
        wait_for_lag((4, 0))  # the device has not acknowledged any
        device.sendall(b"".join([codec.encode(Puback(one.packet_id), 5) for one in commands]))
        wait_for_lag((0, 0))
        device.sendall(codec.encode(Subscribe(9, (Subscription("$p2p/d8", 1),)), 5))
        [refused] = packets(device, 1)
        assert isinstance(refused, Suback)
        assert refused.reason_codes == (ReasonCode.NOT_AUTHORIZED,)


def test_a_connected_session_is_told_with_its_gateway(running: RunningSystem, penstock: Run) -> None:
    with durable(running, "d7", Subscription("plant/+", 1)):
        (row,) = rows(penstock("session", "list", "--json"))
    assert (row["state"], row["away_s"], row["ends_in_s"]) == ("connected", None, None)
    assert row["gateway"]


def test_a_connected_client_without_a_kept_session_is_told_with_what_it_has(
    running: RunningSystem, penstock: Run
) -> None:
    with socket.create_connection(split_address(running.addresses.mqtt), PATIENCE_S) as device:
        subscribe(device, "plain", (Subscription("plant/+", 1), Subscription("$share/w/x", 0)), expiry_s=0)
        (row,) = rows(penstock("session", "list", "--json"))
        assert (row["client"], row["state"], row["subscriptions"]) == ("plain", "connected", 2)
        shown = rows(penstock("session", "show", "plain", "--json"))
        assert [(one["filter"], one["qos"], one["next"]) for one in shown] == [
            ("plant/+", 1, None),
            ("$share/w/x", 0, None),
        ]


def test_every_page_is_asked_for(running: RunningSystem, penstock: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for client in ("c", "a", "b"):
        with durable(running, client, Subscription("x", 1)):
            pass
    monkeypatch.setattr(session_command, "ListSessions", lambda after: ListSessions(after, count_max=1))
    assert [row["client"] for row in rows(penstock("session", "list", "--json"))] == ["a", "b", "c"]


def test_what_cannot_be_read_of_a_session_is_unknown_and_not_0(running: RunningSystem, penstock: Run) -> None:
    with durable(running, "d7", Subscription("x", 1)):
        pass
    with bootstrap(running.addresses.namesrv) as routes:
        link = routes.link(routes.topic(HOME_TOPIC)[0].address)
        opened = link.ask(OpenSession("a-test", "odd", False, 600, b""), OpenedSession)
        save = SessionSave("odd", opened.epoch, RELEASED, 600, terms=b"\xc1", flow=b"\xc1")
        assert link.ask(SaveSessions("a-test", (save,)), SavedSessions).fenced == ()
    row = next(row for row in rows(penstock("session", "list", "--json")) if row["client"] == "odd")
    assert (row["subscriptions"], row["on_way"], row["waiting"]) == (None, None, None)
    assert " - " in next(line for line in penstock("session", "list").stdout.splitlines() if "odd" in line)
    result = penstock("session", "show", "odd")
    assert result.exit_code != 0
    assert "cannot be read" in result.stderr


def test_a_session_is_ended_and_its_client_cut_off(running: RunningSystem, penstock: Run) -> None:
    with socket.create_connection(split_address(running.addresses.mqtt), PATIENCE_S) as device:
        subscribe(device, "d7", (Subscription("x", 1),))
        result = penstock("session", "end", "d7", "--yes", "--json")
        assert json.loads(result.stdout) == {"client": "d7", "user": None, "state": "connected", "ended": True}
        reader = PacketReader(1 << 20)
        reader.level = 5
        assert reader.receive(device.recv(4096))[0] == Disconnect(
            0x98, Properties(reason_string="an operator has ended the session")
        )
        assert device.recv(1) == b""
    assert rows(penstock("session", "list", "--json")) == []
    with durable(running, "d7", Subscription("x", 1)):
        pass
    wait_until_gone(penstock)
    result = penstock("session", "end", "d7", "--yes")
    assert (result.exit_code, result.stdout) == (0, "the session of d7 has ended\n")
    assert penstock("session", "end", "d7", "--yes").exit_code == 3


def test_no_session_ends_without_a_yes(running: RunningSystem, penstock: Run) -> None:
    with durable(running, "d7", Subscription("x", 1)):
        pass
    asked = ["--server", running.addresses.namesrv, "session", "end", "d7"]
    for said in ("", "n\n", "\n"):
        result = CliRunner().invoke(root, asked, input=said)
        assert result.exit_code != 0
        assert "add --yes" in result.stderr
        assert [row["client"] for row in rows(penstock("session", "list", "--json"))] == ["d7"]
    assert CliRunner().invoke(root, asked, input="y\n").exit_code == 0
    assert rows(penstock("session", "list", "--json")) == []


def test_a_session_that_there_is_not_is_status_3(running: RunningSystem, penstock: Run) -> None:
    with durable(running, "d7", Subscription("x", 1)):
        pass
    result = penstock("session", "show", "nope")
    assert result.exit_code == 3
    assert "there is no session of nope" in result.stderr


def away(running: RunningSystem, secret: Path, broker: str, address: str) -> None:
    """A broker was there, and is away as far as the name server knows."""
    with bootstrap(running.addresses.namesrv) as routes:
        names = routes.link(running.addresses.namesrv)
        nonce = names.ask(QueryChallenge(), Challenge).nonce
        names.ask(ProveBroker(broker, address, broker_proof(read_secret(secret), nonce, broker, address)), Done)
        if broker not in [one.broker for one in routes.brokers()]:
            names.ask(RegisterBroker(broker, address, 1, 60, (TopicRoute("x", 4),)), Done)
        names.ask(UnregisterBroker(broker, address), Done)


def test_what_is_not_whole_because_a_broker_is_away_is_an_error_that_names_it_or_asked_for(
    running: RunningSystem, secret: Path, penstock: Run
) -> None:
    with durable(running, "d7", Subscription("x/#", 1)):
        pass
    away(running, secret, "broker-b", "127.0.0.1:1")
    for command in (("session", "list"), ("session", "show", "d7")):
        refused = penstock(*command)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "error: broker broker-b is away" in refused.stderr
        assert "--allow-incomplete" in refused.stderr
        allowed = penstock(*command, "--allow-incomplete")
        assert allowed.exit_code == 0
        assert "incomplete: without broker-b" in allowed.stderr


def test_where_the_home_of_sessions_is_away_it_is_named(running: RunningSystem, secret: Path, penstock: Run) -> None:
    with durable(running, "d7", Subscription("x/#", 1)):
        pass
    away(running, secret, "broker-a", running.addresses.broker)  # until it renews its lease, in half a minute
    for command in (("list",), ("show", "d7"), ("end", "d7", "--yes"), ("list", "--allow-incomplete")):
        refused = penstock("session", *command)
        assert refused.exit_code == 1
        assert "broker-a" in refused.stderr
        assert "away" in refused.stderr


def test_connected_clients_are_told_with_their_connections_and_one_is_disconnected(
    running: RunningSystem, penstock: Run
) -> None:
    with socket.create_connection(split_address(running.addresses.mqtt), PATIENCE_S) as device:
        subscribe(device, "d7", (Subscription("x", 1), Subscription("y", 0)))
        [row] = rows(penstock("client", "list", "--json"))
        assert (row["client"], row["address"], row["protocol"]) == ("d7", "127.0.0.1", "MQTT 5 tcp")
        assert (row["subscriptions"], row["since"][:2]) == (2, "20")
        assert "MQTT 5 tcp" in penstock("client", "list").stdout
        follow_packets(penstock, device)
        assert penstock("client", "disconnect", "d7", "--yes").stdout == "d7 is disconnected\n"
        [farewell] = packets(device, 1)
        assert farewell == Disconnect(0x98, Properties(reason_string="an operator has disconnected the client"))
    wait_until_gone(penstock)
    assert rows(penstock("client", "list", "--json")) == []
    assert penstock("client", "disconnect", "d7", "--yes").exit_code == 3
    assert penstock("client", "watch", "d7").exit_code == 3
    assert [one["client"] for one in rows(penstock("session", "list", "--json"))] == ["d7"], "its session stays"
    with Admin(running.addresses.namesrv) as admin:
        admin.end_session("d7")
    assert rows(penstock("session", "list", "--json")) == []
