"""Logins against the real system: users made by the command line, a client over a real socket that knows RFC 5802 only.

"Nothing lost" means here: what an authenticated client published is acknowledged and delivered, in order, although it
authenticates again in between.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.mqtt.packets import Auth, Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe, Subscription
from gateway.mqtt.properties import Properties
from tests.endtoend.conftest import System
from tests.endtoend.lines import Device
from tests.gateway.scram_client import METHOD, ScramClient
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend

AGAIN, CONTINUE = 0x19, 0x18


def add_user(file: Path, name: str, password: str, *options: str) -> None:
    command = [sys.executable, "-m", "node", "user", "add", name, "--file", str(file), *options]
    subprocess.run(command, input=password + "\n", text=True, check=True, capture_output=True, timeout=PATIENCE_S)


def authenticate(device: Device, scram: ScramClient, client_id: str = "d1") -> object:
    """CONNECT, the exchange, and the packet that ends it."""
    properties = Properties(authentication_method=METHOD, authentication_data=scram.first, session_expiry_interval=600)
    device.send(Connect(client_id, clean_start=False, level=5, properties=properties))
    return answered(device, scram)


def answered(device: Device, scram: ScramClient) -> object:
    challenge = device.next()
    assert isinstance(challenge, Auth), challenge
    assert challenge.reason_code == CONTINUE
    final = scram.final(challenge.properties.authentication_data)
    device.send(Auth(CONTINUE, Properties(authentication_method=METHOD, authentication_data=final)))
    return device.next()


@pytest.fixture
def opened() -> Iterator[list[Device]]:
    """The devices of a test."""
    devices: list[Device] = []
    yield devices
    for one in devices:
        one.socket.close()


def connect(system: System, opened: list[Device]) -> Device:
    opened.append(Device((system.mqtt_host, system.mqtt_port), 5))
    return opened[-1]


def connected(system: System, opened: list[Device], client_id: str = "d1") -> Device:
    device, scram = connect(system, opened), ScramClient("alice", "wonderland")
    connack = authenticate(device, scram, client_id)
    assert isinstance(connack, Connack)
    assert connack.reason_code == 0
    assert connack.properties.authentication_method == METHOD
    assert scram.believes(connack.properties.authentication_data)
    return device


def test_a_client_logs_in_by_scram_and_again_while_its_messages_flow(
    system: type[System], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[Device]
) -> None:
    users, rules = tmp_path / "passwords", tmp_path / "acl"
    add_user(users, "alice", "wonderland")
    add_user(users, "plain", "wonderland", "--no-scram")
    rules.write_text("allow user alice all devices/%u/#\n")
    monkeypatch.setenv("PENSTOCK_GATEWAY_PASSWORD_FILE", str(users))
    monkeypatch.setenv("PENSTOCK_GATEWAY_ACL_FILE", str(rules))
    monkeypatch.setenv("PENSTOCK_GATEWAY_ANONYMOUS", "nobody")
    running = system().start()

    device = connected(running, opened)
    device.send(Subscribe(1, (Subscription("devices/alice/#", 1), Subscription("devices/bob/#", 1))))
    suback = device.next()
    assert isinstance(suback, Suback)
    assert suback.reason_codes == (1, 0x87)

    scram = ScramClient("alice", "wonderland", nonce="another")
    begin = Auth(AGAIN, Properties(authentication_method=METHOD, authentication_data=scram.first))
    device.send(*[Publish("devices/alice/a", b"%d" % n, 1, packet_id=n) for n in range(1, 11)], begin)
    packets: list[object] = []
    while sum(isinstance(one, Auth) for one in packets) < 2 or len(packets) < 22:
        packets.append(device.next())
        if isinstance(packets[-1], Auth) and packets[-1].reason_code == CONTINUE:
            final = scram.final(packets[-1].properties.authentication_data)
            device.send(Auth(CONTINUE, Properties(authentication_method=METHOD, authentication_data=final)))
    assert [one.payload for one in packets if isinstance(one, Publish)] == [b"%d" % n for n in range(1, 11)]
    assert sorted(one.packet_id for one in packets if isinstance(one, Puback)) == list(range(1, 11))
    [done] = [one for one in packets if isinstance(one, Auth) and one.reason_code == 0]
    assert scram.believes(done.properties.authentication_data)

    salts = set()
    for name in ("alice", "plain", "nobody"):
        refused, wrong = connect(running, opened), ScramClient(name, "wrong")
        assert authenticate(refused, wrong) == Connack(False, 0x87)
        assert refused.rest() == b""
        assert wrong.iterations == 32_768
        salts.add(wrong.salt)
    assert len(salts) == 3

    running.kill()
    running = system(data=running.data).start()
    back = connected(running, opened, "d2")
    stranger, unknown = connect(running, opened), ScramClient("nobody", "wrong")
    assert authenticate(stranger, unknown) == Connack(False, 0x87)
    assert unknown.salt in salts, "a name that is not there has the same salt at every gateway"

    wrong = ScramClient("alice", "wrong")
    back.send(Auth(AGAIN, Properties(authentication_method=METHOD, authentication_data=wrong.first)))
    assert answered(back, wrong) == Disconnect(0x87)
    assert back.rest() == b""
    assert running.stop() == 0


def test_a_token_is_a_password_and_the_connection_ends_with_it(
    system: type[System], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[Device]
) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    key = tmp_path / "tokens.pem"
    key.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    monkeypatch.setenv("PENSTOCK_GATEWAY_JWT_KEY_FILE", str(key))
    monkeypatch.setenv("PENSTOCK_GATEWAY_JWT_AUDIENCE", "penstock")
    monkeypatch.setenv("PENSTOCK_GATEWAY_JWT_LEEWAY_S", "0")
    monkeypatch.setenv("PENSTOCK_GATEWAY_ANONYMOUS", "nobody")
    running = system().start()

    def token(seconds: float, audience: str = "penstock") -> bytes:
        return jwt.encode({"sub": "alice", "aud": audience, "exp": time.time() + seconds}, private, "ES256").encode()

    for seconds in (3, 30):  # a machine with much to do may need more than three to log it in
        device = connect(running, opened)
        device.send(Connect("d1", password=token(seconds), level=5), Publish("t", b"x", 1, packet_id=1))
        if device.next() == Connack(False, 0x86):
            continue
        stored = device.next()
        if isinstance(stored, Puback):
            break
    assert isinstance(stored, Puback)
    farewell = device.next()
    assert isinstance(farewell, Disconnect)
    assert farewell.reason_code == 0x87
    assert device.rest() == b""
    for password in (token(-1), token(60, "others"), token(60)[:-4] + b"AAAA", b"no token"):
        refused = connect(running, opened)
        refused.send(Connect("d1", user_name="alice", password=password, level=5))
        assert refused.next() == Connack(False, 0x86)
    assert running.stop() == 0


def test_a_key_that_cannot_be_used_is_one_line_and_status_2(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("hush, but short")
    environ = os.environ | {"PENSTOCK_GATEWAY_JWT_KEY_FILE": str(key)}
    ports = ["--mqtt-port", "0", "--broker-port", "0", "--namesrv-port", "0", "--http-port", "0"]
    command = [sys.executable, "-m", "node", "up", *ports, "--data", str(tmp_path / "data")]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environ)
    assert refused.returncode == 2
    assert str(key) in refused.stderr
    assert "hush" not in refused.stderr
