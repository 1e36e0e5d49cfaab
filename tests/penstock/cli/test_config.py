"""``penstock config`` against real servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

from penstock.blocking import Producer
from penstock.errors import NoRoute

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]
KEYS = ("k1", "k2", "k3", "k4", "k5", "k6")


def test_entries_are_set_listed_and_removed(penstock: Penstock, rows: Rows) -> None:
    assert penstock("config", "list").stderr == "(no entries)\n"
    assert rows("config", "set", "n", "k", "v") == [{"namespace": "n", "key": "k", "value": "v"}]
    assert rows("config", "list", "n") == [{"namespace": "n", "key": "k", "value": "v"}]
    assert penstock("config", "delete", "n", "k", stdin=b"n\n").exit_code == 2
    assert penstock("config", "delete", "n", "k", "--yes").stdout == "n k is deleted\n"
    assert rows("config", "list") == []
    assert "names no brokers" in penstock("config", "set", "ORDER_TOPIC_CONFIG", "orders", ";").stderr


def test_an_empty_value_deletes_nothing_and_brokers_that_are_not_there_are_named(penstock: Penstock) -> None:
    empty = penstock("config", "set", "n", "k", "")
    assert (empty.exit_code, "`penstock config delete` deletes it" in empty.stderr) == (2, True)
    absent = penstock("config", "set", "ORDER_TOPIC_CONFIG", "orders", "broker-a;nope:4")
    assert absent.stderr.startswith("warning: no live broker is called nope:")
    spaced = penstock("config", "set", "ORDER_TOPIC_CONFIG", "orders", "broker-a; nope;")
    assert spaced.stderr.startswith("warning: no live broker is called nope:")
    assert penstock("config", "set", "ORDER_TOPIC_CONFIG", "orders", " broker-a ;").stderr == ""


def test_a_key_of_an_ordered_topic_waits_for_its_broker(rows: Rows, real_cluster: Any) -> None:
    rows("topic", "create", "orders")
    rows("config", "set", "ORDER_TOPIC_CONFIG", "orders", "broker-a;broker-b")
    waits = 0
    with Producer(servers=real_cluster.servers, timeout_s=0.3) as producer:
        for key in KEYS:
            try:
                producer.send("orders", b"x", key=key)
            except NoRoute:
                waits += 1
        producer.send("orders", b"without a key")
    assert 0 < waits < len(KEYS)
    rows("config", "delete", "ORDER_TOPIC_CONFIG", "orders", "--yes")
    with Producer(servers=real_cluster.servers) as producer:
        for key in KEYS:
            producer.send("orders", b"x", key=key)


def test_gateways_get_entries_that_are_settings_of_theirs_and_no_others(penstock: Penstock, rows: Rows) -> None:
    assert penstock("config", "gateways", "trace_sample", "0.5").stdout == "trace_sample of all gateways is 0.5\n"
    assert [row["value"] for row in rows("config", "list", "GATEWAY_SETTINGS")] == ["0.5"]
    for setting, value in (("status_host", "0.0.0.0"), ("trace_sample", "nan"), ("log_level", "loud")):
        assert penstock("config", "gateways", setting, value).exit_code == 2
    said = penstock("config", "gateways", "trace_sample").stdout
    assert said == "trace_sample of each gateway is its own again\n"


def test_settings_of_running_name_servers_change_and_no_other_one_does(penstock: Penstock) -> None:
    said = penstock("config", "live", "connection_log", "off").stdout
    assert said == "connection_log of the name servers is off until their next start\n"
    said = penstock("config", "live", "connection_log").stdout
    assert said == "connection_log of each name server is its own again\n"
    for setting, value in (("config_file", "/tmp/x"), ("log_level", "loud")):
        refused = penstock("config", "live", setting, value)
        assert (refused.exit_code, setting in refused.stderr) == (2, True)
