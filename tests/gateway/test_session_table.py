"""Which client id has which session."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

import pytest

from gateway.session import NEVER_ENDS
from gateway.session_table import SessionTable

if TYPE_CHECKING:
    from gateway.device import Device

CONNECTION = cast("Device", object())


def table() -> SessionTable:
    return SessionTable(sessions_max=3, window=10)


@pytest.mark.mqtt("3.1.2-6", old=("3.1.2-4",))
def test_a_new_client_has_a_new_session() -> None:
    sessions = table()
    entry = sessions.enter("a", False, 0.0)
    assert not entry.present
    assert entry.ended is None
    assert sessions.get("a") is entry.session


@pytest.mark.mqtt("3.1.2-5", old=("3.1.2-4",))
def test_a_client_that_comes_back_finds_its_session() -> None:
    sessions = table()
    first = sessions.enter("a", True, 0.0).session
    first.expiry_s = 60
    assert sessions.leave(first, 0.0) is False
    again = sessions.enter("a", False, 59.0)
    assert again == (first, True, None)


@pytest.mark.mqtt("3.1.2-4", old=("3.1.2-6",))
def test_clean_start_replaces_the_session() -> None:
    sessions = table()
    first = sessions.enter("a", False, 0.0).session
    again = sessions.enter("a", True, 0.0)
    assert again.ended is first
    assert not again.present
    assert sessions.get("a") is again.session


def test_a_session_without_expiry_ends_with_its_connection() -> None:
    sessions = table()
    session = sessions.enter("a", False, 0.0).session
    assert sessions.leave(session, 0.0) is True
    assert sessions.get("a") is None


@pytest.mark.mqtt("4.1.0-2")
def test_a_session_ends_when_its_expiry_has_passed() -> None:
    sessions = table()
    session = sessions.enter("a", False, 0.0).session
    session.expiry_s = 60
    sessions.leave(session, 100.0)
    assert sessions.take_ended(159.0) == []
    assert sessions.take_ended(160.0) == [session]
    assert len(sessions) == 0


def test_a_session_that_is_past_its_expiry_is_not_present_even_before_the_tick() -> None:
    sessions = table()
    session = sessions.enter("a", False, 0.0).session
    session.expiry_s = 60
    sessions.leave(session, 0.0)
    assert sessions.enter("a", False, 61.0).ended is session


def test_a_client_that_is_back_in_time_keeps_its_session() -> None:
    sessions = table()
    session = sessions.enter("a", False, 0.0).session
    session.expiry_s = 60
    sessions.leave(session, 0.0)
    sessions.enter("a", False, 30.0).session.device = CONNECTION
    assert sessions.take_ended(1000.0) == []
    assert sessions.get("a") is session


def test_a_session_may_never_end() -> None:
    sessions = table()
    session = sessions.enter("a", False, 0.0).session
    session.expiry_s = NEVER_ENDS
    sessions.leave(session, 0.0)
    assert sessions.take_ended(1e12) == []


def test_the_table_has_room_for_so_many_and_for_those_it_knows() -> None:
    sessions = table()
    for client_id in "abc":
        sessions.enter(client_id, False, 0.0)
    assert sessions.has_room("a")
    assert not sessions.has_room("d")


def test_an_assigned_id_is_in_use_by_nobody() -> None:
    sessions = table()
    first = sessions.new_client_id(random.Random(1))
    sessions.enter(first, True, 0.0)
    assert sessions.new_client_id(random.Random(1)) != first
