from __future__ import annotations

import socket
from pathlib import Path

import pytest

from node import settings
from node.services import refuse_taken_ports, service_settings
from node.settings import Configuration
from penstock.errors import AddressInUse, InvalidConfig


def configuration(tmp_path: Path, text: str, **flags: object) -> Configuration:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    return settings.load(file, {}, flags)


def test_a_service_has_its_section_and_what_the_node_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_GATEWAY_QOS_MAX", "1")
    text = 'host = "127.0.0.2"\n[gateway]\nreceive_max = 7\nlisteners = ["ws 127.0.0.1:0"]\n'
    chosen = configuration(tmp_path, text, mqtt_port=1885, listen=("tcp 127.0.0.1:0 name=also",))
    gateway = service_settings(chosen, "gateway", name="g")
    assert (gateway.host, gateway.port, gateway.qos_max, gateway.receive_max, gateway.name) == (
        "127.0.0.2",
        1885,
        1,
        7,
        "g",
    )
    assert gateway.listeners == ("ws 127.0.0.1:0", "tcp 127.0.0.1:0 name=also")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[broker]\ndefault_level = "ram"\n',
            r"penstock.toml:2: \[broker\] default_level is 'ram' \(it is one of cache, disk\)",
        ),
        (
            "[gateway]\npasword_file = 'x'\n",
            r":2: \[gateway\] pasword_file is no setting \(did you mean 'password_file'",
        ),
        ("[gateway]\nlisteners = ['tls 127.0.0.1:0']\n", "has no certificate"),
        ("[namesrv]\nbrokers_max = 0\n", "brokers_max"),
        ("[broker]\nhost = '0.0.0.0'\n", r"\[broker\] host is '0.0.0.0': .*set insecure = true"),
        ("[namesrv]\nhost = '::'\n", r"\[namesrv\] host is '::': .*set insecure = true"),
    ],
)
def test_a_wrong_setting_of_any_service_is_told_before_anything_starts(tmp_path: Path, text: str, said: str) -> None:
    configuration(tmp_path, "")
    with pytest.raises(InvalidConfig, match=said):
        configuration(tmp_path, text)


def test_all_wrong_settings_are_told_at_once_each_with_its_line_and_the_nearest_right_one(tmp_path: Path) -> None:
    text = """mqtt_prot = 1
http_port = 99999
default_queues = 4

[brokr]
default_queues = 4

[broker]
segment_bytes = "1 furlong"
default_queues = 0
data = "x"

[gateway]
receive_max = -1
"""
    with pytest.raises(InvalidConfig) as refused:
        configuration(tmp_path, text)
    first, *lines = str(refused.value).replace(str(tmp_path), "").splitlines()
    assert first == "8 settings are wrong:"
    said = dict(line.strip().removeprefix("/penstock.toml:").split(": ", 1) for line in lines)
    assert sorted(map(int, said)) == [1, 2, 3, 5, 9, 10, 11, 14]
    assert said["1"] == "mqtt_prot is no setting (did you mean 'mqtt_port'?)"
    assert said["2"].startswith("http_port is 99999")
    assert said["3"] == "default_queues stands in no table (it is a setting of [broker])"
    assert said["5"] == "[brokr] is no table of settings (did you mean [broker]?)"
    assert said["9"].startswith("[broker] segment_bytes: expected a whole number, got '1 furlong' (write a number with")
    assert said["10"].startswith("[broker] default_queues is 0 (it is at least 1)")
    assert said["11"].startswith("[broker] data cannot be set here: `penstock up` decides it")
    assert said["14"].startswith("[gateway] receive_max")


def test_gateways_do_not_share_a_port_with_those_of_another_system(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as gateways do that share it
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(AddressInUse, match=f"127.0.0.1:{port} is already in use"):
            refuse_taken_ports(configuration(tmp_path, "", mqtt_port=port))
        with pytest.raises(AddressInUse, match=f"127.0.0.1:{port} is already in use"):
            refuse_taken_ports(configuration(tmp_path, "", mqtt_port=0, listen=(f"tcp 127.0.0.1:{port} name=also",)))
    refuse_taken_ports(configuration(tmp_path, "", mqtt_port=port))
