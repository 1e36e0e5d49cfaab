"""All services in this process, on real sockets, while the machine's clock jumps."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import jwt
import pytest
import trio
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.mqtt.packets import Connack, Connect, Puback, Publish, Suback, Subscribe, Subscription
from gateway.mqtt.properties import Properties
from node import embedded, settings
from node.addresses import Addresses
from penstock.blocking.consumer import Consumer
from penstock.cli.root import root
from penstock.protocol.addresses import split_address
from penstock.world import World, real_world
from tests.endtoend.lines import Device
from tests.patience import PATIENCE_S, poll
from tests.penstock.admin_scene import delay
from tests.penstock.hand_clock import SetClock

pytestmark = pytest.mark.endtoend

ANY_PORTS = {"mqtt_port": 0, "broker_port": 0, "namesrv_port": 0, "http_port": 0}


@pytest.fixture
def devices() -> Iterator[list[Device]]:
    opened: list[Device] = []
    yield opened
    for one in opened:
        one.socket.close()


def page(addresses: Addresses, path: str) -> str:
    with urllib.request.urlopen(f"http://{addresses.http}{path}", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


class Bench:
    """What the test does from a thread while the services run."""

    def __init__(self, addresses: Addresses, clock: SetClock, key: ec.EllipticCurvePrivateKey, devices: list[Device]):
        self.addresses, self.clock, self._key, self._devices = addresses, clock, key, devices

    def login(self, name: str, exp_s: float, nbf_s: float = -10.0) -> int:
        """Connects with a token; returns the reason code."""
        now = time.time()
        token = jwt.encode({"sub": "alice", "exp": now + exp_s, "nbf": now + nbf_s}, self._key, "ES256").encode()
        device = Device(split_address(self.addresses.mqtt), 5)
        self._devices.append(device)
        device.send(Connect(name, password=token, level=5))
        connack = device.next()
        assert isinstance(connack, Connack)
        return connack.reason_code

    @property
    def last(self) -> Device:
        return self._devices[-1]

    def publish(self, name: str, expiry_s: int, *, retain: bool = False) -> None:
        properties = Properties(message_expiry_interval=expiry_s)
        self.last.send(Publish(name, b"x", 1, retain, packet_id=1, properties=properties))
        assert isinstance(self.last.next(), Puback)

    def retained(self) -> set[str]:
        """Names of the retained messages that a new subscriber is sent, up to the one that has no expiry."""
        assert self.login("reader", 600.0) == 0
        self.last.send(Subscribe(1, (Subscription("r/#", 0),)))
        assert isinstance(self.last.next(), Suback)
        found: set[str] = set()
        while "r/z" not in found:
            packet = self.last.next()
            assert isinstance(packet, Publish)
            found.add(packet.topic)
        return found

    def stored_ms(self) -> list[int]:
        """Store times of all messages of the topic ``m``, in order."""
        with Consumer("g", "m", servers=self.addresses.namesrv, start="earliest") as consumer:
            found: list[int] = []
            while len(found) < 3:
                found += [message.stored_ms for message in consumer.poll(30.0)]
        return sorted(found)


async def running(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clock: SetClock,
    devices: list[Device],
    work: Callable[[Bench], None],
) -> None:
    """Runs all services while ``work`` is done in a thread."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = tmp_path / "tokens.pem"
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    monkeypatch.setenv("PENSTOCK_GATEWAY_JWT_KEY_FILE", str(public))
    monkeypatch.setenv("PENSTOCK_GATEWAY_ANONYMOUS", "nobody")
    real = real_world()
    world = World(clock, real.rng, real.offload, real.own_thread)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        chosen = settings.load(None, {}, {**ANY_PORTS, "data": tmp_path / "data"})
        addresses: Addresses = await nursery.start(partial(embedded.run, chosen, world, stop))
        await trio.to_thread.run_sync(work, Bench(addresses, clock, key, devices))
        stop.set()


@pytest.mark.parametrize("jump_ms", [7_200_000, 2_592_000_000, -7_200_000])
async def test_a_jump_changes_neither_messages_nor_logins_and_is_told_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: list[Device], jump_ms: int
) -> None:
    def work(bench: Bench) -> None:
        began_ms = time.time() * 1000
        assert bench.login("writer", 600.0) == 0
        bench.publish("r/a", 3600, retain=True)
        bench.publish("m", 3600)
        bench.clock.ahead_ms = jump_ms
        assert bench.login("in", 600.0) == 0
        assert bench.login("over", -600.0) == 0x86
        assert bench.login("early", 86_400.0, 600.0) == 0x86
        assert bench.login("writer", 600.0) == 0
        bench.publish("r/b", 3600, retain=True)
        bench.publish("m", 3600)
        bench.last.send(Publish("r/z", b"x", 1, True, packet_id=1))
        assert isinstance(bench.last.next(), Puback)
        assert bench.retained() == {"r/a", "r/b", "r/z"}
        health = json.loads(page(bench.addresses, "/healthz"))
        assert health["status"] == "degraded"
        assert [reason for reason in health["reasons"] if "clock has jumped" in reason]
        assert page(bench.addresses, "/readyz") == "ok\n"
        assert "# HELP process_clock_jump_s " in page(bench.addresses, "/metrics")
        told = CliRunner().invoke(root, ["--server", bench.addresses.namesrv, "status", "--json"])
        assert told.exit_code == 1
        assert "clock has jumped" in told.output
        bench.clock.ahead_ms = 0
        assert bench.login("writer", 600.0) == 0
        bench.publish("m", 3600)
        assert bench.retained() == {"r/a", "r/b", "r/z"}
        shown = bench.stored_ms()
        assert began_ms - 2_000 <= shown[0]
        assert shown[-1] <= time.time() * 1000 + 2_000

    await running(tmp_path, monkeypatch, SetClock(), devices, work)


async def test_services_that_start_again_on_a_wrong_clock_go_on_with_the_right_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: list[Device]
) -> None:
    clock = SetClock()

    def store(bench: Bench) -> None:
        assert bench.login("writer", 600.0) == 0
        bench.publish("m", 3600)

    def work(bench: Bench) -> None:
        store(bench)
        shown = bench.stored_ms()
        assert shown[-1] <= time.time() * 1000 + 2_000
        assert "clock has jumped" in page(bench.addresses, "/healthz")

    await running(tmp_path, monkeypatch, clock, devices, store)
    clock.ahead_ms = 7_200_000
    await running(tmp_path, monkeypatch, clock, devices, store)
    await running(tmp_path, monkeypatch, clock, devices, work)


async def test_a_jump_forward_freezes_delayed_messages_visibly_until_an_operator_confirms_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: list[Device]
) -> None:
    def work(bench: Bench) -> None:
        def penstock(*words: str) -> Result:
            return CliRunner().invoke(root, ["--server", bench.addresses.namesrv, *words])

        assert "delayed messages are delivered" in penstock("timer", "confirm-clock").stderr
        bench.clock.ahead_ms = 7_200_000
        poll("frozen timers", lambda: "no delayed message fires" in page(bench.addresses, "/healthz"))
        delay(bench.addresses.namesrv, b"late", 1)
        listed = penstock("timer", "list")
        assert '"orders"' in penstock("timer", "list", "--json").stdout
        assert "the clock of broker-a has jumped forward by 7200 s" in listed.stderr
        assert "confirm-clock" in listed.stderr
        assert "\npenstock_timers_frozen_s 7200" in page(bench.addresses, "/metrics")
        assert page(bench.addresses, "/readyz") == "ok\n"
        confirmed = penstock("timer", "confirm-clock", "--yes")
        assert confirmed.stdout == "confirmed the clock of broker-a\n"
        with Consumer("g", "orders", servers=bench.addresses.namesrv, start="earliest") as consumer:
            while not (got := consumer.poll(30.0)):
                pass
        assert [message.body for message in got] == [b"late"]
        assert penstock("timer", "list").stderr == "(no delayed messages)\n"
        assert "no delayed message fires" not in page(bench.addresses, "/healthz")

    await running(tmp_path, monkeypatch, SetClock(), devices, work)
