"""Failed logins: what an operator sees of them, and where they end."""

from __future__ import annotations

import logging

import pytest

from gateway.login.attempts import CAUSES, LIMIT, NO_CREDENTIALS, UNKNOWN_USER, WRONG_PASSWORD, Attempts
from gateway.login.auth import Peer
from penstock.protocol.requests.messages import AuditEntry
from penstock.service.audit import Audit

HERE = Peer("10.0.0.1", None, "tcp")


class Clocked:
    """``Attempts`` by a clock that the test moves. ``told``: limits that were met."""

    def __init__(self, per_min_max: int) -> None:
        self.now = 1000.0
        self.told: list[str] = []
        self.attempts = Attempts(per_min_max, self.refuse, lambda: self.now)

    def refuse(self, limit: str) -> int:
        self.told.append(limit)
        return 0x9F


def test_an_address_from_which_too_many_failed_is_turned_away_until_there_were_fewer() -> None:
    made = Clocked(6)
    for _ in range(6):
        assert made.attempts.over(HERE) == 0
        made.attempts.failed(WRONG_PASSWORD, HERE, "c")
    assert made.attempts.over(HERE) == 0x9F
    assert made.told == [LIMIT]
    assert made.attempts.over(Peer("10.0.0.2")) == 0, "others are not touched"
    made.now += 9
    assert made.attempts.over(HERE) == 0x9F
    made.now += 1
    assert made.attempts.over(HERE) == 0
    made.now += 3600
    for _ in range(6):
        made.attempts.failed(UNKNOWN_USER, HERE, "c")
    assert made.attempts.over(HERE) == 0x9F, "an hour brings no more than a minute"


def test_whatever_failed_at_once_is_owed_so_that_the_average_holds() -> None:
    made = Clocked(60)
    for _ in range(180):
        made.attempts.failed(WRONG_PASSWORD, HERE, "c")
    made.now += 119
    assert made.attempts.over(HERE) == 0x9F
    made.now += 2
    assert made.attempts.over(HERE) == 0


def test_who_shows_nothing_has_guessed_nothing_and_0_is_no_limit() -> None:
    for made, cause in ((Clocked(1), NO_CREDENTIALS), (Clocked(0), WRONG_PASSWORD)):
        for _ in range(100):
            made.attempts.failed(cause, HERE, "c")
        assert made.attempts.over(HERE) == 0
        assert made.attempts.refused == dict.fromkeys(CAUSES, 0) | {cause: 100}


def test_the_log_says_who_and_why_a_bounded_number_of_times(caplog: pytest.LogCaptureFixture) -> None:
    made = Clocked(0)
    with caplog.at_level(logging.WARNING):
        made.attempts.failed(WRONG_PASSWORD, HERE, "d" * 1000, "alice")
        for _ in range(99):
            made.attempts.failed(UNKNOWN_USER, HERE, "evil\nlogin accepted")
        made.now += 1
        made.attempts.failed(UNKNOWN_USER, HERE, "c")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 11
    assert lines[0] == f"login refused: wrong_password; user 'alice', client id {'d' * 64!r}, from 10.0.0.1 at tcp"
    assert "\n" not in lines[1]
    assert lines[-1].endswith("; 90 more were not told")


def test_each_failed_login_is_in_the_audit_log_also_where_no_line_of_the_log_tells_of_it() -> None:
    audit = Audit(lambda: 7, lambda: 0.0)
    attempts = Attempts(0, lambda limit: 0x9F, lambda: 0.0, audit)
    for _ in range(100):
        attempts.failed(WRONG_PASSWORD, HERE, "c", "ada")
    attempts.failed_check(UNKNOWN_USER, HERE, "c")
    assert audit.trail.take() == (
        AuditEntry(7, "ada", "mqtt", "10.0.0.1", "Login", "", False, WRONG_PASSWORD, "c", 100),
        AuditEntry(7, "", "mqtt", "10.0.0.1", "Login", "", False, UNKNOWN_USER, "c"),
    )
