"""What a client may publish, and leave to be published."""

from __future__ import annotations

import pytest
from own_topics import OnlyOwnTopics
from rig import Gateway

from gateway.login.auth import Identity
from gateway.mqtt.reason_codes import Told
from gateway.sessions.session_state import Will

ME = Identity("me", "")


def code(reason: int | Told) -> int:
    return reason.code if isinstance(reason, Told) else reason


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("me/a", 0),
        ("other/a", 0x87),
        ("$SYS/a", 0x87),
        ("$events/bus/a", 0x87),
        ("me/+", 0x90),
        ("", 0x90),
        ("me/a/b/c", 0x90),
        ("x" * 300 + "/a", 0x87),
    ],
)
def test_a_name_is_judged_by_itself_the_limits_and_the_rules(name: str, expected: int) -> None:
    judge = Gateway(OnlyOwnTopics(), topic_levels_max=3).services.judge
    assert code(judge.unfit_name(ME, name)) == expected
    assert code(judge.unfit_will(ME, Will(name, b"", 1, False, 0, 0, b""))) == expected


def test_a_will_that_no_broker_would_store_is_not_taken() -> None:
    judge = Gateway(OnlyOwnTopics()).services.judge
    told = judge.unfit_will(ME, Will("me/a", b"", 1, False, 0, 0, bytes(200_000)))
    assert isinstance(told, Told)
    assert told.code == 0x97
    assert "bytes once stored" in told.why


def test_a_will_is_judged_again_by_who_left_it() -> None:
    judge = Gateway(OnlyOwnTopics()).services.judge
    assert judge.may_leave("me", Will("me/a", b"", 1, False, 0, 0, b"", "anybody"))
    assert not judge.may_leave("other", Will("me/a", b"", 1, False, 0, 0, b""))


def test_a_subscription_with_a_position_needs_both_rights() -> None:
    judge = Gateway(OnlyOwnTopics()).services.judge
    assert judge.unfit_subscription(ME, "a/#", "") == judge.unfit_subscription(ME, "a/#", "own") == 0
    assert judge.unfit_subscription(ME, "secret/#", "own") == 0x87
    assert judge.unfit_subscription(ME, "a/#", "secret") == Told(
        0x87, "the position secret is not this client's to keep"
    )


def test_no_client_subscribes_to_the_configuration_of_event_bridges() -> None:
    judge = Gateway().services.judge
    told = [judge.unfit_subscription(ME, one, "") for one in ("$events/#", "$events/+", "$events", "$eventsx/#", "#")]
    assert [code(one) for one in told] == [0x87, 0x87, 0x87, 0, 0]
