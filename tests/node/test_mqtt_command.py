"""``penstock mqtt`` against a real gateway."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Connack, Disconnect, Packet, Publish, Suback
from gateway.mqtt.reason_codes import ReasonCode
from node.command import root
from node.mqtt_command import show
from penstock.protocol.addresses import split_address
from tests.node.running import RunningSystem
from tests.patience import PATIENCE_S

Mqtt = Callable[..., Result]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    running = RunningSystem(tmp_path / "data")
    yield running.addresses.mqtt
    running.stop()


@pytest.fixture
def mqtt(address: str) -> Mqtt:
    def run(command: str, *arguments: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(root, ["mqtt", command, "--gateway", address, *arguments], input=stdin)

    return run


@pytest.mark.endtoend
def test_a_retained_message_is_published_and_read_back(mqtt: Mqtt) -> None:
    result = mqtt("pub", "plant/state", "on", "--retain", "--json")
    said = {"topic": "plant/state", "published": 1, "qos": 1, "retain": True, "level": "disk"}
    assert json.loads(result.stdout) == said
    assert mqtt("sub", "plant/#", "-n", "1", "-v").stdout == "plant/state on\n"
    row = json.loads(mqtt("sub", "plant/#", "-n", "1", "--json").stdout)
    assert row == {"topic": "plant/state", "qos": 1, "retain": True, "encoding": "utf-8", "body": "on"}


@pytest.mark.endtoend
def test_host_and_port_may_be_said_apart_as_mosquittos_tools_take_them(address: str) -> None:
    host, port = split_address(address)
    told = CliRunner().invoke(root, ["mqtt", "pub", "plant/d7", "x", "--host", host, "-p", str(port), "--json"])
    assert json.loads(told.stdout)["published"] == 1
    told = CliRunner().invoke(root, ["mqtt", "pub", "plant/d7", "x", "--gateway", f"{host}:1", "--port", str(port)])
    assert told.exit_code == 0


@pytest.mark.endtoend
def test_mosquittos_letters_mean_what_they_mean_there(address: str) -> None:
    host, port = split_address(address)
    at = ["-h", host, "-p", str(port), "-i", "me"]
    sent = CliRunner().invoke(root, ["mqtt", "pub", *at, "-t", "plant/state", "-m", "on", "-q", "1", "-r"])
    assert sent.exit_code == 0
    got = CliRunner().invoke(root, ["mqtt", "sub", *at, "-t", "plant/state", "-t", "other", "-C", "1", "-v"])
    assert got.stdout == "plant/state on\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pub", "a", "-t", "b", "-m", "x"], "give the topic once"),
        (["pub", "-m", "x"], "give the topic once"),
        (["pub", "a", "x", "-m", "y"], "give the message once"),
        (["sub"], "give a FILTER"),
    ],
)
def test_what_is_said_twice_or_not_at_all_is_refused(arguments: list[str], said: str) -> None:
    refused = CliRunner().invoke(root, ["mqtt", *arguments])
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_lines_come_from_standard_input_alone(mqtt: Mqtt) -> None:
    refused = mqtt("pub", "plant/log", "--lines", "file.txt")
    assert refused.exit_code == 2
    assert "--lines reads standard input; give no BODY" in refused.stderr


@pytest.mark.endtoend
def test_all_of_standard_input_is_a_message_where_nothing_else_is_given(mqtt: Mqtt) -> None:
    sent = mqtt("pub", "plant/log", "-q", "0", stdin=b"whole\ninput")
    assert (sent.exit_code, sent.stderr) == (0, "1 published to plant/log, QoS 0: not acknowledged\n")


@pytest.mark.parametrize("name", ["a/#", "+/a", "", "a\x00b"])
def test_what_is_no_name_is_refused_before_anybody_is_asked(name: str) -> None:
    result = CliRunner().invoke(root, ["mqtt", "pub", name, "x", "--gateway", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert f"error: {name!r}: " in result.stderr


@pytest.mark.parametrize("filter", ["a/#/b", "a+", "", "a\x00b", "$share/group", "$share//a", "$share/g/a#"])
def test_what_is_no_filter_is_refused_before_anybody_is_asked(filter: str) -> None:
    result = CliRunner().invoke(root, ["mqtt", "sub", "a/#", filter, "--gateway", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert f"error: {filter!r}: " in result.stderr


@pytest.mark.endtoend
def test_a_line_is_published_while_standard_input_goes_on(mqtt: Mqtt, address: str) -> None:
    command = [sys.executable, "-m", "node", "mqtt", "pub", "plant/log", "--lines", "-r", "--gateway", address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        print("a", file=running.stdin, flush=True)
        assert mqtt("sub", "plant/log", "-n", "1").stdout == "a\n"
        _, said = running.communicate("b\r\n\nlast", timeout=PATIENCE_S)
    assert said == "4 published to plant/log, acknowledged: on level disk\n"
    assert mqtt("sub", "plant/log", "-n", "1").stdout == "last\n"


def gateway_of(listener: socket.socket, *lives: list[Packet]) -> threading.Thread:
    """Answers one connection after the other: each subscribes, is sent these packets and is closed."""

    def serve() -> None:
        for packets in lives:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(encode(Connack(False, 0), 5))
                connection.recv(1000)
                connection.sendall(b"".join([encode(one, 5) for one in (Suback(1, (0,)), *packets)]))

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_subscriber_connects_again_until_it_has_what_it_wants() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = gateway_of(listener, [Publish("a", b"1")], [], [Publish("a", b"2")])
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        done = CliRunner().invoke(root, ["mqtt", "sub", "a", "-n", "2", "-q", "0", "--gateway", address])
        thread.join()
    assert (done.exit_code, done.stdout) == (0, "1\n2\n")
    assert done.stderr.count("(subscribed to a)") == 3
    assert done.stderr.count("trying again)") == 2


def test_a_subscriber_does_not_fight_another_one_for_its_session() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = gateway_of(listener, [Disconnect(ReasonCode.SESSION_TAKEN_OVER)])
        done = CliRunner().invoke(
            root, ["mqtt", "sub", "a", "-q", "0", "--gateway", f"127.0.0.1:{listener.getsockname()[1]}"]
        )
        thread.join()
    assert done.exit_code == 2
    assert "session taken over" in done.stderr


def test_nobody_there_says_what_to_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    result = CliRunner().invoke(root, ["mqtt", "pub", "a", "x", "--gateway", address])
    assert result.exit_code == 1
    assert f"error: no server at {address}: connection refused" in result.stderr
    assert "penstock up" in result.stderr


@pytest.mark.parametrize("command", ["pub", "sub"])
def test_help_has_examples(command: str) -> None:
    shown = CliRunner().invoke(root, ["mqtt", command, "--help"]).stdout
    assert f"penstock mqtt {command} " in shown
    assert "--json" in shown


@pytest.mark.parametrize(
    ("is_terminal", "said"),
    [(True, "a/\\u202eb \\x1b]0;x\\x07\\n2\n"), (False, "a/\\u202eb \x1b]0;x\x07\n2\n")],
    ids=["terminal", "pipe"],
)
def test_no_payload_commands_a_terminal_and_a_pipe_gets_it_as_it_is(
    is_terminal: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    show(Publish("a/\u202eb", b"\x1b]0;x\x07\n2"), True, False)
    assert capsys.readouterr().out == said
