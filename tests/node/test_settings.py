from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from node.settings import (
    SERVICES,
    SETTINGS,
    Configuration,
    NodeSettings,
    access_of,
    console_may_act,
    for_child,
    gateway_name,
    listeners,
    load,
    place,
    service_settings,
    with_ports,
)
from penstock.errors import InvalidConfig
from remoting.settings import RemotingSettings

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "operator.md").read_text()
ROOTS = ("penstock", "namesrv", "broker", "console", "gateway", "node", "loadtest", "tests")
READING = r'(?:environ(?:\.get\(|\[)|envvar=|_VARIABLE: Final = )"(PENSTOCK_[A-Z_]+)"'


def test_the_environment_is_stronger_than_the_file_and_flags_are_strongest(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("mqtt_port = 1\nbroker_port = 2\nhttp_port = 3\n")
    environ = {"PENSTOCK_BROKER_PORT": "20", "PENSTOCK_HTTP_PORT": "30"}
    node = load(file, environ, {"http_port": 300}).node
    assert (node.mqtt_port, node.broker_port, node.http_port) == (1, 20, 300)


@pytest.mark.parametrize("kind", [*SETTINGS.values(), RemotingSettings])
def test_no_service_has_open_status_pages_beyond_loopback_unless_that_is_meant(kind: type[Any]) -> None:
    pages = {"status_host": "0.0.0.0", "status_port": 0}
    with pytest.raises(InvalidConfig, match="status_host is"):
        kind(**pages)
    assert kind(**pages, insecure=True).insecure
    with pytest.raises(InvalidConfig, match="http_host is"):
        NodeSettings(http_host="0.0.0.0")


def test_the_guides_file_and_variable_are_taken(tmp_path: Path) -> None:
    section = GUIDE.partition("## Change a setting\n")[2].partition("\n## ")[0]
    file = tmp_path / "penstock.toml"
    file.write_text(section.partition("```toml\n")[2].partition("```")[0])
    configuration = load(file, {}, {})
    assert configuration.node.data == Path("/var/lib/penstock")
    assert service_settings(configuration, "gateway", {}).connections_max == 20_000
    assert service_settings(configuration, "broker", {}).retention_s == 7 * 86_400
    (variable,) = re.findall(r"`(PENSTOCK_\w+)=7d`", section)
    assert service_settings(load(None, {}, {}), "broker", {variable: "7d"}).retention_s == 7 * 86_400


def test_a_table_of_the_file_is_kept_for_its_service(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[broker]\ndefault_queues = 8\n")
    services = load(file, {}, {}).services
    assert services == {"broker": {"default_queues": 8}, "console": {}, "events": {}, "gateway": {}, "namesrv": {}}


def test_an_unknown_setting_is_refused_and_the_nearest_one_named(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("mqtt_prot = 1\n")
    with pytest.raises(InvalidConfig, match="mqtt_port"):
        load(file, {}, {})


@pytest.mark.parametrize(
    ("line", "homes"), [("connections_max = 5", r"\[gateway\]"), ('name = "x"', r"\[broker\] and of \[gateway\]")]
)
def test_a_setting_that_stands_in_no_table_is_told_where_it_belongs(tmp_path: Path, line: str, homes: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(line + "\n")
    with pytest.raises(InvalidConfig, match=f"stands in no table.*it is a setting of {homes}"):
        load(file, {}, {})


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("client_crl = 'x'", r"client_crl is no setting .of \[console\]: it is called tls_client_crl now"),
        ("flush_bytes = 5", r"flush_bytes is no setting .of \[broker\]: leave it out"),
    ],
)
def test_a_former_setting_that_stands_in_no_table_is_told_its_fate(tmp_path: Path, line: str, told: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(line + "\n")
    with pytest.raises(InvalidConfig, match=told):
        load(file, {}, {})


def test_an_empty_host_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="host is empty"):
        load(None, {}, {"host": ""})


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


def written(tmp_path: Path, text: str, environ: dict[str, str] | None = None, **flags: object) -> Configuration:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    return load(file, environ or {}, flags)


def test_where_a_service_listens_is_said_by_itself_before_it_is_said_for_all(tmp_path: Path) -> None:
    chosen = written(tmp_path, 'host = "::1"\nmqtt_port = 1\nbroker_port = 2\n[gateway]\nhost = "0.0.0.0"\nport = 3\n')
    assert place(chosen, "gateway", {}) == {}
    assert place(chosen, "broker", {}) == {"host": "::1", "port": 2}
    assert place(chosen, "broker", {"PENSTOCK_BROKER_HOST": "0.0.0.0"}) == {"port": 2}
    assert place(chosen, "namesrv", {}) == {"host": "::1", "port": 9876}
    assert place(written(tmp_path, ""), "gateway", {}) == {"host": "127.0.0.1", "port": 1883}


def test_a_port_is_taken_from_a_flag_then_from_the_environment_then_from_the_file(tmp_path: Path) -> None:
    environ, own = {"PENSTOCK_MQTT_PORT": "5"}, {"PENSTOCK_GATEWAY_PORT": "6"}
    flagged = written(tmp_path, "[gateway]\nport = 3\n", environ | own, mqtt_port=7)
    assert place(flagged, "gateway", environ | own)["port"] == 7
    chosen = written(tmp_path, "[gateway]\nport = 3\n", environ)
    assert "port" not in place(chosen, "gateway", environ | own)
    assert place(chosen, "gateway", environ)["port"] == 5
    assert "port" not in place(chosen, "gateway", {})


@pytest.mark.parametrize(
    ("service", "setting"),
    [
        ("broker", "data"),
        ("broker", "namesrv"),
        ("namesrv", "cluster_secret_file"),
        ("broker", "cluster_secret_file"),
        ("gateway", "namesrv"),
        ("gateway", "share_port"),
    ],
)
def test_what_the_node_decides_cannot_be_said_for_a_service(tmp_path: Path, service: str, setting: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"\[{service}\] {setting} cannot be set here"):
        written(tmp_path, f"[{service}]\n{setting} = 'x'\n")
    with pytest.raises(InvalidConfig, match=rf"\[{service}\] {setting} cannot be set here"):
        load(None, {f"PENSTOCK_{service}_{setting}".upper(): "x"}, {})


def test_the_gateways_name_is_said_by_its_environment_or_its_section(tmp_path: Path) -> None:
    chosen = written(tmp_path, "[gateway]\nname = 'a'\n")
    assert gateway_name(chosen, {}) == "a"
    assert gateway_name(chosen, {"PENSTOCK_GATEWAY_NAME": "b"}) == "b"
    assert gateway_name(load(None, {}, {}), {}) == ""


def test_a_variable_that_nobody_reads_is_refused_like_an_unknown_key_of_the_file() -> None:
    with pytest.raises(InvalidConfig) as refused:
        load(None, {"PENSTOCK_DATTA": "/var/lib/penstock"}, {})
    assert "PENSTOCK_DATTA names no setting (did you mean PENSTOCK_DATA?)" in str(refused.value)


@pytest.mark.interpreted
def test_no_variable_that_the_tree_itself_reads_keeps_a_node_from_starting() -> None:
    root = Path(__file__).parents[2]
    code = [path for top in ROOTS for path in (root / top).rglob("*.py")]
    of_services = [f"PENSTOCK_{service.upper()}_" for service in SERVICES]
    read = {name for path in code for name in re.findall(READING, path.read_text())}
    assert {"PENSTOCK_SERVER", "PENSTOCK_CHILD", "PENSTOCK_FUZZ_PACKETS", "PENSTOCK_BROKER_DATA"} <= read
    load(None, dict.fromkeys({name for name in read if not name.startswith(tuple(of_services))}, "x"), {})


def test_a_host_for_everything_beyond_loopback_is_refused_with_the_line_for_devices_alone(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidConfig, match=r"host is '0\.0\.0\.0': .*to let devices alone in, set host under \[gateway\]"
    ):
        written(tmp_path, 'host = "0.0.0.0"\n')
    assert written(tmp_path, 'host = "0.0.0.0"\n[gateway]\nhost = "127.0.0.1"\n', insecure=True).node.insecure


def test_the_nodes_insecure_counts_for_its_broker_and_name_server_unless_they_say_otherwise(tmp_path: Path) -> None:
    chosen = written(tmp_path, "insecure = true\n[broker]\ninsecure = false\n")
    assert place(chosen, "namesrv", {})["insecure"] is True
    assert "insecure" not in place(chosen, "namesrv", {"PENSTOCK_NAMESRV_INSECURE": "false"})
    assert "insecure" not in place(chosen, "broker", {})
    assert "insecure" not in place(chosen, "gateway", {})


@pytest.mark.parametrize("where", ['password_file = "users"\n', '[broker]\npassword_file = "users"\n'])
def test_the_front_for_rocketmqs_clients_has_the_users_of_its_broker(where: str, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("rocketmq_port = 0\nrocketmq_namesrv_port = 0\n" + where)
    given = access_of(service_settings(load(file, {}, {}), "broker", {}))
    assert RemotingSettings(host="0.0.0.0", **given).password_file == "users"


def test_what_asks_for_no_login_is_no_way_round_the_users_of_the_broker(tmp_path: Path) -> None:
    file, ports, where = tmp_path / "penstock.toml", "events_port = 0\n", '[broker]\npassword_file = "users"\n'
    file.write_text(ports + where)
    with pytest.raises(InvalidConfig, match="would come past the"):
        load(file, {}, {})
    file.write_text(ports + "insecure = true\n" + where)
    assert load(file, {}, {}).node.events_port == 0


def test_the_event_bridge_has_the_users_of_the_broker() -> None:
    users = load(None, {}, {"events_port": 0, "password_file": "users", "acl_file": "rules"})
    settings = service_settings(users, "events", {})
    assert (settings.asks, settings.password_file, settings.acl_file) == (True, "users", "rules")


CERTIFICATES = 'tls_certificate = "s"\ntls_client_ca = "c"\ntls_clients = "required"\npeers_tls_ca = "c"\n'


@pytest.mark.parametrize(
    ("lines", "rules"),
    [
        (CERTIFICATES, ""),
        (CERTIFICATES + '[console]\npassword_file = "users"\n', "rules"),
        ('password_file = "users"\n', "rules"),
        ('password_file = "users"\n[console]\npassword_file = ""\n', ""),
    ],
)
def test_rules_of_the_node_are_the_consoles_where_it_has_users(tmp_path: Path, lines: str, rules: str) -> None:
    """Certificates at the top are not for browsers; the other services ask for them, and have the rules."""
    file = tmp_path / "penstock.toml"
    file.write_text(f'acl_file = "rules"\n{lines}')
    configuration = load(file, {}, {})
    assert service_settings(configuration, "console", {}).acl_file == rules
    assert service_settings(configuration, "broker", {}).acl_file == "rules"


@pytest.mark.parametrize(
    ("text", "acts"),
    [("", True), ('password_file = "users"\n', True), ('[broker]\npassword_file = "users"\n', False)],
)
def test_a_console_without_users_does_not_act_for_everyone_at_a_broker_that_asks(
    text: str, acts: bool, tmp_path: Path
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    assert console_may_act(load(file, {}, {}), {}) is acts


def test_the_event_bridge_stays_on_this_machine_where_only_other_ports_ask_for_a_login() -> None:
    console = {"PENSTOCK_CONSOLE_HOST": "127.0.0.1"}
    beyond = load(None, console, {"host": "0.0.0.0", "password_file": "users"})
    assert (beyond.node.host, service_settings(beyond, "events", {}).host) == ("0.0.0.0", "127.0.0.1")
    insecure = load(None, {}, {"host": "0.0.0.0", "insecure": True, "events_port": 0})
    assert service_settings(insecure, "events", {}).host == "0.0.0.0"
    with pytest.raises(InvalidConfig, match="events_port is -2"):
        load(None, {}, {"events_port": -2})
