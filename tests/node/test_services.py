from __future__ import annotations

import socket
from pathlib import Path

import pytest

from node import settings
from node.services import check, refuse_taken_ports, service_settings
from node.settings import Configuration
from penstock.errors import AddressInUse, InvalidConfig


def configuration(tmp_path: Path, text: str, **flags: object) -> Configuration:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    return settings.load(file, {}, flags)


def test_a_service_has_its_section_and_what_the_node_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_GATEWAY_SHARDS", "2")
    text = 'host = "127.0.0.2"\n[gateway]\nreceive_max = 7\nlisteners = ["ws 127.0.0.1:0"]\n'
    chosen = configuration(tmp_path, text, mqtt_port=1885, listen=("tcp 127.0.0.1:0 name=also",))
    gateway = service_settings(chosen, "gateway", name="g")
    assert (gateway.host, gateway.port, gateway.shards, gateway.receive_max, gateway.name) == (
        "127.0.0.2",
        1885,
        2,
        7,
        "g",
    )
    assert gateway.listeners == ("ws 127.0.0.1:0", "tcp 127.0.0.1:0 name=also")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[broker]\ndefault_level = "ram"\n', r"\[broker\]: default_level is one of"),
        ("[gateway]\npasword_file = 'x'\n", r"\[gateway\]: pasword_file is no setting \(did you mean 'password_file'"),
        ("[gateway]\nlisteners = ['tls 127.0.0.1:0']\n", "has no certificate"),
        ("[namesrv]\nlease_s_max = 0\n", "lease_s_max"),
    ],
)
def test_a_wrong_setting_of_any_service_is_told_before_anything_starts(tmp_path: Path, text: str, said: str) -> None:
    check(configuration(tmp_path, ""))
    with pytest.raises(InvalidConfig, match=said):
        check(configuration(tmp_path, text))


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
