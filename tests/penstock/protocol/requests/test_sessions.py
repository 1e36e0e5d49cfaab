"""MQTT sessions and exchanges, as the first gateways spoke of them."""

from __future__ import annotations

import msgpack
import pytest

from penstock.errors import Damaged
from penstock.protocol.requests import sessions
from penstock.protocol.requests.sessions import (
    CONNECTED,
    RELEASED,
    KeepSessions,
    ListSessionFilters,
    ListSessions,
    OpenedSession,
    OpenSession,
    ReleaseExchanges,
    SaveSessions,
    SessionRow,
    SessionSave,
    SessionsPage,
    saved_places,
)
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    assert codes(sessions) == {
        100: "OpenSession",
        101: "SaveSessions",
        102: "EndSession",
        103: "KeepSessions",
        104: "WatchSessions",
        105: "FetchExchanges",
        106: "ReleaseExchanges",
        107: "ListSessionFilters",
        108: "FindEndedSessions",
        109: "ListSessions",
        110: "EndGatewayEpochs",
        111: "CloseSession",
        118: "AskSubscriptions",
        119: "TellSubscriptions",
    }


def test_a_session_is_opened_without_claim_or_force_for_nobody_in_particular_unless_asked() -> None:
    opened = OpenSession("g", "c", True, 60, b"will", claim=False, force=False, user="")
    assert asked(100, "g", "c", True, 60, b"will") == opened


def test_a_session_that_was_not_there_before_has_nothing_saved() -> None:
    told = OpenedSession(5, 5, False, state=RELEASED, ended=0, will=b"", terms=b"", flow=b"", expiry_s=0, doubtful_ms=0)
    assert answered(OpenSession, 5, 5, False) == told


def test_a_save_without_bytes_leaves_them_as_they_were() -> None:
    save = SessionSave("c", 5, CONNECTED, 60, will=b"", terms=b"", flow=b"")
    assert asked(101, "g", [["c", 5, 0, 60]]) == SaveSessions("g", (save,))


def test_an_owner_that_lives_on_keeps_what_it_had() -> None:
    assert asked(103, "g", 10.0) == KeepSessions("g", 10.0, fresh=False)


def test_a_release_of_ids_is_judged_by_no_epoch_and_keeps_what_fences_unless_it_says_so() -> None:
    assert asked(106, "c", 5, [1]) == ReleaseExchanges("c", 5, (1,), is_over=False, epoch=0)


def test_sessions_are_listed_from_the_oldest_on() -> None:
    assert asked(107) == ListSessionFilters(after=0, count_max=1000)


def test_how_sessions_stand_is_told_from_the_oldest_on_unless_one_is_asked_for() -> None:
    assert asked(109) == ListSessions(after=0, count_max=1000, client="", contains="")
    row = SessionRow("c", 5, "g", RELEASED, "alice", 7, 60, b"terms", b"flow")
    assert answered(ListSessions, [list(row)], 5) == SessionsPage((row,), 5)


def test_bytes_that_are_no_flow_are_an_error_and_none_at_all_are_no_places() -> None:
    assert saved_places(b"") == []
    for flow in (
        b"\xc1",
        b"\x01",
        b"\x90",
        b"\x91\x01",
        msgpack.packb([[["f", "b"]]]),
        msgpack.packb({0: [["f"]]}),
    ):
        with pytest.raises(Damaged, match="cannot be read"):
            saved_places(flow)
    assert saved_places(msgpack.packb([[["f", "b", 7, "of a later gateway"]]])) == [("f", "b", 7)]
