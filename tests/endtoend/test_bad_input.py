"""Bad input gives one clear line or the protocol's own error, hurts no bystander, and nothing stored is lost.

"Nothing lost" means here: a message that was stored before the bad input is read afterwards, and new ones are stored.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.blocking import Producer, Reader
from tests.endtoend.conftest import System
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend

WAIT_S = PATIENCE_S
CONNECT = bytes.fromhex("10 0d 00 04 4d515454 04 02 003c 0001 61")
HUGE_FRAME = (0x7FFFFFFF).to_bytes(4, "big") + b"\x00" * 64
UNKNOWN_REQUEST = bytes.fromhex("00000009 00000005 92 cd7530 07")  # type 30000, id 7


def up(*options: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A `penstock up` that is expected to refuse."""
    ports = ["--mqtt-port", "0", "--broker-port", "0", "--namesrv-port", "0", "--http-port", "0"]
    command = [sys.executable, "-m", "node", "up", *ports, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ | (environ or {}))


def answer(address: str, data: bytes) -> bytes:
    """All that a server answers to some bytes, which are all it gets, until it closes too."""
    host, _, port = address.rpartition(":")
    said = b""
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65_536):
                said += chunk
        except TimeoutError:
            pytest.fail(f"{address} neither answers nor closes")
        except OSError:
            pass  # it closed with our bytes unread
    return said


def store_and_read(system: System, body: bytes) -> set[bytes]:
    """Stores one message and reads all there are."""
    with Producer(servers=system.namesrv) as producer:
        producer.send("kept", body, key="k")
    with Reader("kept", servers=system.namesrv, until_end=True) as reader:
        return {message.body for message in reader.messages()}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One for all tests; a signal ends it with status 0, as SIGTERM does those of other files."""
    system = System(tmp_path_factory.mktemp("bad") / "data")
    try:
        yield system.start()
        os.kill(system.process_of("node"), signal.SIGINT)
        assert system.wait() == 0
    finally:
        system.end()


def test_a_port_in_use_is_one_line_and_status_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = up("--data", str(tmp_path / "data"), "--broker-port", port)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: 127.0.0.1:{port} is already in use")
    assert len(refused.stderr.splitlines()) == 1


def test_a_folder_that_cannot_be_used_is_one_line_and_status_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    refused = up("--data", str(tmp_path / "file" / "data"))
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: ")
    assert str(tmp_path / "file" / "data") in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_folder_that_another_broker_holds_is_refused_and_the_other_goes_on(running: System) -> None:
    refused = up("--data", str(running.data))
    assert refused.returncode == 2
    assert "holds the data folder" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert b"after the refusal" in store_and_read(running, b"after the refusal")


def test_a_wrong_setting_is_one_line_that_names_the_right_one(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[broker]\ndefault_queus = 1")
    refused = up("--config", str(file), "--data", str(tmp_path / "data"))
    assert refused.returncode == 2
    assert "'default_queues'" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize("service", ["namesrv", "broker", "gateway"])
def test_a_service_alone_refuses_an_unknown_setting(tmp_path: Path, service: str) -> None:
    file = tmp_path / "service.toml"
    file.write_text("prot = 1\n")
    command = [sys.executable, "-m", service, "--config", str(file)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert refused.returncode == 2
    assert "'port'" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_hostile_bytes_on_every_port_hurt_nobody_else(running: System) -> None:
    assert b"before" in store_and_read(running, b"before")
    mqtt = f"{running.mqtt_host}:{running.mqtt_port}"
    garbage = bytes(range(256)) * 300
    for address in (running.broker, running.namesrv, mqtt):
        for data in (garbage, HUGE_FRAME, b"\x00", b"", UNKNOWN_REQUEST, CONNECT[:7], b"\x10\xff\xff\xff\xff\x7f"):
            answer(address, data)
    assert store_and_read(running, b"after") >= {b"before", b"after"}


def test_a_wrong_protocol_level_gets_the_connack_of_the_standard(running: System) -> None:
    wrong = CONNECT[:8] + b"\x09" + CONNECT[9:]
    mqtt = f"{running.mqtt_host}:{running.mqtt_port}"
    assert answer(mqtt, wrong) == bytes.fromhex("20 02 00 01")
    # Who closes its own side is gone, and gets no CONNACK if its session is not open by then: the first one waits.
    with socket.create_connection((running.mqtt_host, running.mqtt_port), timeout=WAIT_S) as right:
        right.sendall(CONNECT)
        assert right.recv(4, socket.MSG_WAITALL) == bytes.fromhex("20 02 00 00")
