from __future__ import annotations

from pathlib import Path

import pytest

from node.settings import listeners, load
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
    assert listeners(load(file, {}, {})) == {}
    both = listeners(load(file, {}, {"listen": ("tcp 127.0.0.1:0 name=b",)}))
    assert both == {"listeners": ("ws 127.0.0.1:0", "tcp 127.0.0.1:0 name=b")}
