"""The gateway's settings."""

from __future__ import annotations

from dataclasses import fields

import pytest

from gateway.login.tokens import TokenRules
from gateway.settings import GatewaySettings, parse_rules, token_rules
from penstock.errors import InvalidConfig
from topicmap.queues import Rule


def test_the_defaults_are_valid_and_listen_on_loopback() -> None:
    assert GatewaySettings().host == "127.0.0.1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"anonymous": "all"},
        {"port": 70_000},
        {"namesrv": ()},
        {"receive_max": 0},
        {"over_rate": "drop"},
        {"response_prefix": "a/#"},
        {"sys_prefix": "a"},
        {"jwt_algorithms": ("none",)},
        {"jwt_algorithms": ("HS256", "rs256")},
        {"jwt_claim": ""},
        {"jwt_leeway_s": -1},
        {"topic_rules": ("a",)},
        {"pull_count_max": 0},
        {"connections_max": 0},
        {"connections_max": -1},
        {"connect_wait_s": -1},
        {"client_id_bytes_max": 0},
        {"credentials_cached_s": -5},
        {"pull_wait_s": 0},
        {"sys_prefix": "$SYS/+/x"},
        {"sys_prefix": "$SYS/" + "x" * 1024},
        {"name": "a/b#+"},
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


def test_every_number_has_its_limits() -> None:
    numbers = [one.name for one in fields(GatewaySettings) if isinstance(one.default, int | float)]
    free = {one.name for one in fields(GatewaySettings) if isinstance(one.default, bool)}
    for name in set(numbers) - free:
        with pytest.raises(InvalidConfig, match=name):
            GatewaySettings(**{name: -2})  # type: ignore[arg-type]


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
