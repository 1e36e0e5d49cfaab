"""The gateway's settings."""

from __future__ import annotations

from typing import Any

import pytest
from rig import Gateway

from broker.filters.requests import OWNER_BYTES_MAX
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Puback, Publish, Pubrec
from gateway.publishing.sys_topics import TOLD, SysTopics
from gateway.settings import GatewaySettings, parse_rules, token_rules
from penstock.access.tokens import TokenRules
from penstock.errors import InvalidConfig
from penstock.protocol.requests.filters import OpenFilters
from topicmap.queues import Rule


def test_the_defaults_are_valid_and_listen_on_loopback() -> None:
    assert GatewaySettings().host == "127.0.0.1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"namesrv": ()},
        {"protocol_versions": ()},
        {"protocol_versions": ("3.1.1", "4")},
        {"response_prefix": "a/#"},
        {"sys_prefix": "a"},
        {"jwt_algorithms": ("none",)},
        {"jwt_algorithms": ("HS256", "rs256")},
        {"jwt_claim": ""},
        {"topic_rules": ("a",)},
        {"sys_prefix": "$SYS/+/x"},
        {"sys_prefix": "$SYS/" + "x" * 65_535},
        {"sys_prefix": "$SYS/" + "x" * 65_510},  # with a figure's name behind it it is too long
        {"name": "a/b#+"},
        {"name": "n" * 256},
        {"name": "ü" * 128},
        {"redirect_to": "x" * 65_536},
    ],
)
def test_a_setting_outside_its_limits_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(wrong)).replace("topic_rules", "topic rule")):
        GatewaySettings(**wrong)  # type: ignore[arg-type]


def test_a_topic_rule_is_a_pattern_a_topic_and_perhaps_a_level() -> None:
    assert parse_rules(("a/+/b telemetry 1", "c/# plain")) == [Rule("a/+/b", "telemetry", 1), Rule("c/#", "plain")]


def test_a_topic_rule_with_too_few_words_says_so() -> None:
    with pytest.raises(InvalidConfig, match="topic rule 'foo': it has two or three words, not 1"):
        parse_rules(("foo",))


@pytest.mark.parametrize("line", ["", "a", "a b c", "a b 1 2", "a/#/b t", "a %sys%x"])
def test_a_line_that_is_no_rule_is_refused(line: str) -> None:
    with pytest.raises(InvalidConfig, match="topic rule"):
        parse_rules((line,))


def test_what_a_token_must_be_is_as_set() -> None:
    assert token_rules(GatewaySettings()) == TokenRules()
    settings = GatewaySettings(
        jwt_algorithms=("ES256",),
        jwt_audience="a",
        jwt_issuer="i",
        jwt_claim="c",
        jwt_expiry_required=False,
        jwt_leeway_s=1,
    )
    assert token_rules(settings) == TokenRules(("ES256",), "a", "i", "c", False, 1)


LARGEST: dict[str, Any] = {
    "name": "n" * 255,
    "client_id_bytes_max": 4096,
    "append_bytes_max": 8 * 1024 * 1024,
    "packet_bytes_max": 4 * 1024 * 1024,
}


@pytest.mark.parametrize("clean_start", [True, False])
def test_a_client_with_the_longest_id_and_name_is_served_by_a_gateway_with_the_longest_name(clean_start: bool) -> None:
    gateway = Gateway(**LARGEST)
    client = gateway.connect("i" * 4096, clean_start=clean_start)
    name = "a/" + "x" * 65_533
    client.subscribe(name)
    client.got()
    for qos in range(3):
        client.publish(name, b"x", qos, packet_id=qos and 7)
    gateway.pass_time(1)
    assert gateway.broker.bodies() == [b"x"] * 3
    assert {Puback(7), Pubrec(7)} <= {packet for packet in client.got() if not isinstance(packet, Publish)}
    assert max(len(asked.owner.encode()) for asked in gateway.broker.made(OpenFilters)) <= OWNER_BYTES_MAX


def test_no_batch_is_larger_than_a_broker_takes_whatever_the_settings_are() -> None:
    """A broker refuses more than 16 MiB of records."""
    gateway = Gateway(**LARGEST)
    client = gateway.connect("i" * 4096)
    client.publish("a", b"warm")
    gateway.rounds.begin()
    client.device.receive(encode(Publish("a", b""), 4) * 13_107)  # 64 KiB, as they are read at once
    client.device.receive(encode(Publish("a", bytes(4_000_000)), 4) * 3)
    gateway.round()
    assert len(gateway.broker.messages()) == 13_111


def test_every_figure_has_a_name_under_the_longest_prefix() -> None:
    longest = "$SYS/" + "x" * 65_504
    gateway = Gateway(sys_prefix=longest)
    with pytest.raises(InvalidConfig, match="sys_prefix"):
        GatewaySettings(sys_prefix=longest + "x")
    SysTopics(gateway.upstream, longest, "gw", 1.0, 0.0).tell(dict.fromkeys(TOLD.values(), 1.0), 1.0)
    gateway.round()
    assert len(gateway.broker.messages()) == len(TOLD) + 2


def test_status_pages_are_open_to_other_machines_only_where_it_is_said_and_mqtt_is_as_ever() -> None:
    exposed: dict[str, Any] = {"status_host": "0.0.0.0", "status_port": 0}
    with pytest.raises(InvalidConfig, match=r"status_host is '0\.0\.0\.0'.*reads all figures"):
        GatewaySettings(**exposed)
    assert GatewaySettings(**exposed, insecure=True).insecure
    assert GatewaySettings(host="0.0.0.0", listeners=("ws 0.0.0.0:8083",), status_host="0.0.0.0").host == "0.0.0.0"
