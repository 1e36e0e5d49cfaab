from __future__ import annotations

from typing import Any

import pytest

from events.problems import Problem
from events.specs import Bus, Http, Rule, Target

URL = "https://api.example/in"


def http(**more: Any) -> dict[str, Any]:
    return {"kind": "http", "url": URL} | more


def test_a_target_keeps_what_is_said_and_takes_the_rest_as_usual() -> None:
    target = Target.of(http(concurrency=3, headers={"x-a": "b"}, timeout_s=1.5))
    assert isinstance(target.to, Http)
    assert (target.concurrency, target.to.place.host, target.to.method, target.to.timeout_s) == (
        3,
        "api.example",
        "POST",
        1.5,
    )


WRONG: list[tuple[Any, Any]] = [
    (Bus, []),
    (Bus, {"violations": "shout"}),
    (Bus, {"color": 1}),
    (Target, {"kind": "mail"}),
    (Target, {"kind": ["http"]}),
    (Target, {"kind": "http"}),
    (Target, http(url="ftp://x/")),
    (Target, http(url="http:///x")),
    (Target, http(url="http://a:99999/")),
    (Target, http(url="http://user:pw@x/")),
    (Target, http(url="http://x/\r\ny")),
    (Target, http(url="http://[::1/")),
    (Target, http(method="TRACE")),
    (Target, http(headers={"Host": "x"})),
    (Target, http(headers={"x-a": "a\r\nb"})),
    (Target, http(headers={"a b": "c"})),
    (Target, http(headers={"ce-id": "1"})),
    (Target, http(secret_headers={"Authorization": "../passwd"})),
    (Target, http(hmac="/etc/passwd")),
    (Target, http(batch=0)),
    (Target, http(timeout_s=0)),
    (Target, http(concurrency=True)),
    (Target, http(rate_per_s=-1)),
    (Target, http(topic="x")),
    (Target, {"kind": "topic", "topic": "a/b"}),
    (Target, {"kind": "device"}),
    (Target, {"kind": "device", "mqtt_topic": "a/${x}"}),
    (Target, {"kind": "device", "mqtt_topic": "a", "qos": 3}),
    (Rule, {}),
    (Rule, {"target": "a b"}),
    (Rule, {"target": "t", "pattern": {"x": "y"}}),
    (Rule, {"target": "t", "transform": {"kind": "x"}}),
    (Rule, {"target": "t", "retry": {"kind": "x"}}),
    (Rule, {"target": "t", "start": "yesterday"}),
    (Rule, {"target": "t", "enabled": 1}),
]


@pytest.mark.parametrize(("kind", "spec"), WRONG)
def test_what_makes_no_sense_is_refused(kind: Any, spec: Any) -> None:
    with pytest.raises(Problem) as caught:
        kind.of(spec)
    assert caught.value.status == 400


def test_a_fault_in_a_pattern_is_pointed_at_in_the_rule() -> None:
    with pytest.raises(Problem) as caught:
        Rule.of({"target": "t", "pattern": {"data": {"x": [{"prefix": ""}]}}})
    assert caught.value.more == {"pointer": "/pattern/data/x/0/prefix"}
