"""What a name server answers, as the first peers said it."""

from __future__ import annotations

from penstock.protocol.requests import routes
from penstock.protocol.requests.routes import (
    BrokerHeartbeat,
    BrokerRoute,
    Challenge,
    HeartbeatReply,
    ProveBroker,
    QueryChallenge,
    QueryRoute,
    RegisterBroker,
    Route,
    TopicRoute,
)
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    assert codes(routes) == {
        10: "RegisterBroker",
        11: "BrokerHeartbeat",
        12: "UnregisterBroker",
        13: "QueryRoute",
        14: "QueryTopics",
        15: "QueryChallenge",
        16: "ProveBroker",
        17: "PutConfig",
        18: "QueryConfig",
    }


def test_the_first_frames_still_mean_the_same() -> None:
    assert asked(10, "b", "h:1", 3, 30.0, [["t", 4]]) == RegisterBroker("b", "h:1", 3, 30.0, (TopicRoute("t", 4),))
    assert answered(BrokerHeartbeat, False) == HeartbeatReply(known=False)
    assert answered(QueryChallenge, b"n") == Challenge(b"n")
    assert asked(16, "b", "h:1", b"p") == ProveBroker("b", "h:1", b"p")


def test_a_route_is_writable_unless_it_says_otherwise() -> None:
    assert answered(QueryRoute, [["b", "h:1", 4]]) == Route((BrokerRoute("b", "h:1", 4, writable=True),))
    assert answered(QueryRoute, [["b", "h:1", 4]]).away == (), "an older name server does not tell"
    assert answered(QueryRoute, [["b", "h:1", 4, False]]) == Route((BrokerRoute("b", "h:1", 4, writable=False),))
