"""The log of native connections."""

from __future__ import annotations

import logging
import ssl

import pytest

from penstock.service.frame_connection import Peer
from penstock.service.native_journal import NativeJournal

PEER = Peer(1, "10.0.0.7:4711")


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(one.levelname, one.getMessage()) for one in caplog.records]


def test_a_connection_has_a_line_when_it_comes_and_one_when_it_goes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    journal = NativeJournal("the broker", "on")
    journal.connected(PEER, 0.0)
    journal.connected(PEER._replace(certificate="plant-a\n"), 0.0)
    journal.disconnected(PEER, "", 0.0, 0.0)
    journal.disconnected(PEER, "alice", 12.5, 12.5)
    assert lines(caplog) == [
        ("INFO", "connected from 10.0.0.7:4711 to the broker"),
        ("INFO", "connected from 10.0.0.7:4711 to the broker, certificate 'plant-a\\n'"),
        ("INFO", "disconnected from 10.0.0.7:4711 to the broker, after 0.0 s"),
        ("INFO", "disconnected user 'alice', from 10.0.0.7:4711 to the broker, after 12.5 s"),
    ]


def test_a_failed_handshake_says_why_and_one_that_was_left_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    journal = NativeJournal("the broker", "sampled")
    wrong = ssl.SSLError(1, "[SSL: HTTP_REQUEST] http request (_ssl.c:1000)")
    wrong.reason = "HTTP_REQUEST"
    journal.handshake_failed(PEER, wrong, 0.0)
    journal.handshake_failed(PEER, ssl.SSLEOFError(8, "EOF occurred"), 0.0)
    journal.handshake_failed(PEER, None, 0.0)
    assert lines(caplog) == [
        ("WARNING", "handshake failed from 10.0.0.7:4711 to the broker: HTTP_REQUEST"),
        ("WARNING", "handshake failed from 10.0.0.7:4711 to the broker: it took too long"),
    ]


def test_off_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    journal = NativeJournal("the broker", "off")
    journal.connected(PEER, 0.0)
    journal.handshake_failed(PEER, None, 0.0)
    assert lines(caplog) == []
