from __future__ import annotations

from pathlib import Path

import pytest

from node.settings import for_child, listeners, load, with_ports
from penstock.errors import InvalidConfig


def test_the_environment_is_stronger_than_the_file_and_flags_are_strongest(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("mqtt_port = 1\nbroker_port = 2\nhttp_port = 3\n")
    environ = {"PENSTOCK_BROKER_PORT": "20", "PENSTOCK_HTTP_PORT": "30"}
    node = load(file, environ, {"http_port": 300}).node
    assert (node.mqtt_port, node.broker_port, node.http_port) == (1, 20, 300)


def test_a_table_of_the_file_is_kept_for_its_service(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[broker]\ndefault_queues = 8\n")
    services = load(file, {}, {}).services
    assert services == {"broker": {"default_queues": 8}, "gateway": {}, "namesrv": {}}


def test_an_unknown_setting_is_refused_and_the_nearest_one_named(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("mqtt_prot = 1\n")
    with pytest.raises(InvalidConfig, match="mqtt_port"):
        load(file, {}, {})


def test_a_service_that_is_no_table_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("broker = 1\n")
    with pytest.raises(InvalidConfig, match=r"\[broker\] must be a table"):
        load(file, {}, {})


def test_listeners_of_a_flag_come_after_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[gateway]\nlisteners = ["ws 127.0.0.1:0"]\n')
    assert listeners(load(None, {}, {}), {}) == {}
    assert listeners(load(file, {}, {}), {}) == {"listeners": ("ws 127.0.0.1:0",)}
    both = load(file, {}, {"listen": ("tcp 127.0.0.1:0 name=b",)})
    assert listeners(both, {}) == {"listeners": ("ws 127.0.0.1:0", "tcp 127.0.0.1:0 name=b")}
    environ = {"PENSTOCK_GATEWAY_LISTENERS": "ws h:1, ws h:2 name=c"}
    assert listeners(both, environ) == {"listeners": ("ws h:1", "ws h:2 name=c", "tcp 127.0.0.1:0 name=b")}


def test_a_port_that_was_free_is_named_from_then_on() -> None:
    lines = ("ws 127.0.0.1:0 path=/x", "tcp [::1]:0 name=b", "tcp h:7 name=c", "wss h:0 certificate=s")
    taken = {"ws": "127.0.0.1:41", "b": "::1:42", "c": "h:7"}
    fixed = ("ws 127.0.0.1:41 path=/x", "tcp [::1]:42 name=b", "tcp h:7 name=c", "wss h:0 certificate=s")
    assert with_ports(lines, taken) == fixed


def test_the_environment_is_stronger_than_the_file_in_a_process_of_its_own_too(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[broker]\ndefault_queues = 8\ndefault_level = 'cache'\nport = 1\n")
    told = for_child(load(file, {}, {}), "broker", {"PENSTOCK_BROKER_DEFAULT_QUEUES": "3"}, {"port": 0})
    assert told == {"default_level": "cache", "port": 0}
