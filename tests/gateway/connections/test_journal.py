"""The log of connections."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doorway import Doorway
from hypothesis import given
from hypothesis import strategies as st
from own_topics import OnlyOwnTopics
from rig import Client, Gateway

from gateway.connections.journal import Journal
from gateway.login.auth import BAD_CREDENTIALS, Anonymous, Credentials, OnIdentity, Peer
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Connect, Disconnect, Publish, Will
from gateway.mqtt.reason_codes import ReasonCode, Told
from penstock.service.audit import Audit
from penstock.service.paced_lines import LOG_RATES

NAME = "gateway.connections.journal"
PEER = Peer("10.0.0.7", None, "tls")


@pytest.fixture(autouse=True)
def every_level(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, NAME):
        yield


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and text of what was logged since the last look."""
    found = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == NAME]
    caplog.clear()
    return found


def logging_gateway(**settings: Any) -> Gateway:
    return Gateway(connection_log="on", **settings)


# ---------------------------------------------------------------- connects and disconnects


@pytest.mark.parametrize("level", [3, 4, 5])
def test_a_connect_and_a_disconnect_are_a_line_each(level: int, caplog: pytest.LogCaptureFixture) -> None:
    gateway = logging_gateway()
    client = gateway.connect("d1", level=level, keep_alive_s=60)
    version = "5" if level == 5 else "3"
    line = f"connected client 'd1', from 127.0.0.1 at tcp, with MQTT {version}, keep-alive 60 s"
    assert lines(caplog) == [("INFO", line)]
    gateway.pass_time(12.5)
    client.send(Disconnect())
    line = "disconnected client 'd1', from 127.0.0.1 at tcp, after 12.5 s: the client sent DISCONNECT"
    assert lines(caplog) == [("INFO", line)]


class Alice(Anonymous):
    """Everybody is alice, but who has the wrong password."""

    def __init__(self) -> None:
        super().__init__("everyone")

    def connect(self, shown: Credentials, done: OnIdentity) -> None:
        if shown.password == b"wrong":
            done(BAD_CREDENTIALS)
        else:
            super().connect(
                shown, lambda found: done(found if isinstance(found, int | Told) else found._replace(user_name="alice"))
            )


def ends(gateway: Gateway, client: Client, how: str) -> None:
    if how == "silence":
        gateway.pass_time(20)
    elif how == "broken":
        client.cut()
    elif how == "taken over":
        gateway.connect("c")
    elif how == "protocol":
        client.send_bytes(b"\x00\x00")
    elif how == "will":
        client.send(Disconnect(0x04))
    else:
        client.publish("a/" * 200, b"", 1, packet_id=1)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("silence", "0x8d keep alive timeout"),
        ("broken", "the client closed the connection without DISCONNECT"),
        ("taken over", "0x8e session taken over"),
        ("protocol", "0x81 malformed packet"),
        ("will", "the client sent DISCONNECT 0x04"),
    ],
)
def test_the_line_of_a_disconnect_says_why(how: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    gateway = Gateway(Alice(), connection_log="on")
    client = gateway.connect("c", level=5, keep_alive_s=10, user_name="bob")
    lines(caplog)
    ends(gateway, client, how)
    [line] = [text for _, text in lines(caplog) if text.startswith("disconnected")]
    assert line.startswith("disconnected client 'c', user 'alice', from 127.0.0.1 at tcp, after ")
    assert line.endswith(f" s: {why}")


# ---------------------------------------------------------------- refusals and failed handshakes


def test_a_refused_connect_is_a_warning_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    gateway = logging_gateway(keep_alive_s_max=60, keep_alive_over_max="refuse", client_id_bytes_max=4)
    for level, asked, why in (
        (4, {"client_id": "d1", "keep_alive_s": 0}, "0x87 not authorized (the limit keep_alive_s_max is reached)"),
        (5, {"client_id": "d1234"}, "0x85 client identifier not valid (the limit client_id_bytes_max is reached)"),
    ):
        client = gateway.open(level)
        client.send(Connect(level=level, **asked))  # type: ignore[arg-type]
        assert lines(caplog) == [("WARNING", f"refused client {asked['client_id']!r}, from 127.0.0.1 at tcp: {why}")]


def test_a_wrong_password_is_told_by_the_log_of_logins_alone_and_never_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway = Gateway(Alice(), connection_log="on")
    gateway.open().send(Connect("c", user_name="alice", password=b"wrong"))
    gateway.connect("c", user_name="alice", password=b"secret").send(Publish("a", b"private"), Disconnect())
    assert len(caplog.records) == 2
    assert not [word for word in ("wrong", "secret", "private") if word in caplog.text]


@pytest.mark.parametrize(
    ("first", "spoken"),
    [
        (b"\x16\x03\x01\x02\x00", "; the client seems to speak TLS"),
        (b"GET / HTTP/1.1\r\n", "; the client seems to speak HTTP"),
        (b"PROXY TCP4 ", "; the client seems to speak the PROXY protocol"),
        (b"\x00\x01", ""),
    ],
)
def test_what_is_no_mqtt_at_a_plain_port_is_a_warning(
    first: bytes, spoken: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = logging_gateway().open()
    client.send_bytes(first)
    [(level, line)] = lines(caplog)
    assert (level, line.partition(": ")[0]) == ("WARNING", "handshake failed from 127.0.0.1 at tcp")
    assert line.endswith(f" (what came first is no CONNECT{spoken})")
    assert client.is_closed


def test_a_client_that_says_nothing_is_a_warning_and_a_health_check_is_none(caplog: pytest.LogCaptureFixture) -> None:
    gateway = logging_gateway()
    gateway.open().cut()
    assert lines(caplog) == []
    gateway.open()
    gateway.pass_time(20)
    why = "no CONNECT came within connect_wait_s"
    assert lines(caplog) == [("WARNING", f"handshake failed from 127.0.0.1 at tcp: {why}")]


@pytest.mark.parametrize(
    ("kind", "sent", "why"),
    [
        ("tls", encode(Connect("c"), 4), "the client speaks MQTT without TLS"),
        ("tls", b"GET / HTTP/1.1\r\n\r\n", "HTTP_REQUEST"),
        ("ws", encode(Connect("c"), 4), "HTTP 400"),
        ("ws", b"\x16\x03\x01\x02\x00", "HTTP 400: no request"),
        ("proxy", encode(Connect("c"), 4), "no header of the PROXY protocol, version 2"),
    ],
)
def test_what_is_spoken_at_the_wrong_port_is_a_warning(
    kind: str, sent: bytes, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    doorway = Doorway(kind, tmp_path, connection_log="on")
    try:
        doorway.knock().send(sent)
        doorway.turn()
        [(level, line)] = lines(caplog)
        assert (level, line.partition(": ")[0]) == ("WARNING", "handshake failed from 127.0.0.1 at x")
        assert why in line
    finally:
        doorway.close()


# ---------------------------------------------------------------- how many lines


def test_the_setting_says_how_many_lines_there_are(caplog: pytest.LogCaptureFixture) -> None:
    for detail, count in (("off", 0), ("sampled", 10), ("on", 100)):
        journal = Journal(detail, Audit(int, float))
        for _ in range(100):
            journal.connected(PEER, "c", "", True, 60, 1.0)
        assert len(lines(caplog)) == count


@pytest.mark.parametrize("detail", ["sampled", "on"])
def test_a_flood_is_bounded_and_the_next_line_counts_what_was_left_out(
    detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    journal, (per_s, at_once) = Journal(detail, Audit(int, float)), LOG_RATES[detail]
    for at in range(20_000):
        journal.handshake_failed("10.0.0.7", "tls", "WRONG_VERSION_NUMBER", at / 2000)
    said = lines(caplog)
    assert at_once <= len(said) <= at_once + per_s * 10 + 1
    told = [int(text.partition("; ")[2].split()[0]) for _, text in said if "; " in text]
    journal.tick(1000.0)
    [(_, last)] = lines(caplog)
    assert len(said) + sum(told) + int(last.split()[2]) == 20_000
    journal.tick(2000.0)
    assert lines(caplog) == []


def test_each_kind_has_a_rate_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal("sampled", Audit(int, float))
    for _ in range(1000):
        journal.handshake_failed("10.0.0.7", "tls", "x", 1.0)
    lines(caplog)
    journal.disconnected(PEER, "c", "", ReasonCode.KEEP_ALIVE_TIMEOUT, 1.0, 1.0)
    journal.turned_away(PEER, "c", ReasonCode.SERVER_BUSY, 1.0)
    assert len(lines(caplog)) == 2


def test_lines_below_the_level_of_the_log_are_not_counted_as_left_out(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal("sampled", Audit(int, float))
    with caplog.at_level(logging.WARNING, NAME):
        for _ in range(100):
            journal.connected(PEER, "c", "", True, 60, 1.0)
    journal.tick(1000.0)
    journal.connected(PEER, "c", "", True, 60, 1000.0)
    assert [text for _, text in lines(caplog)] == [
        "connected client 'c', from 10.0.0.7 at tls, with MQTT 5, keep-alive 60 s"
    ]


@given(client_id=st.text(max_size=200), user=st.text(max_size=200), why=st.text(max_size=300))
def test_whatever_a_client_is_called_a_line_is_one_short_line(client_id: str, user: str, why: str) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger(NAME)
    logger.addHandler(handler)
    try:
        journal = Journal("on", Audit(int, float))
        journal.connected(PEER, client_id, user, True, 60, 1.0)
        journal.disconnected(PEER, client_id, user, Told(0x97, "a limit"), 1.0, 1.0)
        journal.turned_away(PEER, client_id, Told(0x97, why), 1.0)
        journal.handshake_failed("10.0.0.7", "tls", why, 1.0)
    finally:
        logger.removeHandler(handler)
    assert len(records) == 4
    for record in records:
        assert record.getMessage().isprintable()
        assert len(record.getMessage()) < 2500


def test_what_the_rules_refuse_a_device_is_in_the_audit_log_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    gateway = Gateway(OnlyOwnTopics())
    client = gateway.connect("d7", level=5)
    client.subscribe("secret/x", "open")
    for name in ("a/b", "a/b", "d7/b"):
        client.publish(name, b"1")
    gateway.open(5).send(Connect("d8", level=5, will=Will("a/will", b"x")))
    told = [(one.client, one.act, one.name, one.times) for one in gateway.audit.trail.take()]
    assert told == [("d7", "Subscribe", "secret/x", 1), ("d7", "Publish", "a/b", 2), ("d8", "Will", "a/will", 1)]
    assert "refused: Publish 'a/b' by nobody (mqtt), client 'd7', from" in caplog.text
