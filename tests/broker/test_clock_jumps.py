"""What a broker keeps and removes while the machine's clock jumps: by itself, and over restarts and reboots."""

from __future__ import annotations

from typing import Any

import pytest

from broker.store_clock import STANDS_S as AGES_S
from penstock.guarded_clock import STANDS_S
from penstock.protocol.message import FLAG_RETAIN, MQTT_PROPERTIES, MQTT_TOPIC, decode_batch, encode_record
from penstock.protocol.requests.filters import FetchRetained
from penstock.protocol.requests.messages import Append, Pull, SeekTime
from penstock.protocol.requests.sessions import RELEASED, OpenedSession, OpenSession, SaveSessions, SessionSave
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig

EPOCH_MS = 1_700_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
JUMPS = [2 * HOUR_MS, 30 * DAY_MS, -2 * HOUR_MS, -30 * DAY_MS]
RETENTION_S = 3 * 86_400.0


def started(**more: Any) -> Rig:
    rig = Rig(set_ms=EPOCH_MS, **{"boot_id": "one", "retention_s": RETENTION_S, "segment_bytes": 1 << 14, **more})
    rig.ask(CreateTopic("t", 1))
    return rig


def pass_time(rig: Rig, seconds: float) -> None:
    end = rig.clock.now + seconds
    while rig.clock.now < end:
        rig.clock.now = min(end, rig.clock.now + max(0.5, seconds / 200))
        rig.dispatch.tick()
        rig.sync()


def right_ms(rig: Rig) -> int:
    return EPOCH_MS + int(rig.clock.now * 1000)


def store(rig: Rig, body: bytes, name: str = "", expiry_s: int | None = None, flag: int = 0) -> None:
    """Stores a message that a gateway with a right clock has taken."""
    properties = f"{MQTT_TOPIC}\x01{name or 't'}"
    if expiry_s is not None:
        properties += f"\x02{MQTT_PROPERTIES}\x01{expiry_s}:"
    record = encode_record(b"t", body, properties.encode(), flag=flag, born_ms=right_ms(rig))
    rig.ask(Append(1, False, record))


def times(rig: Rig) -> list[int]:
    """Store times of all messages."""
    found, offset = [], 0
    while (pulled := rig.ask(Pull("t:0", offset))).count:
        found += [message.stored_ms for _, message in decode_batch(pulled.count, pulled.body)]
        offset = pulled.next
    return found


def filled(rig: Rig) -> int:
    """Fills some segments; returns where the log begins."""
    for _ in range(40):
        store(rig, bytes(2000))
        pass_time(rig, 0.5)
    pass_time(rig, 20.0)
    return rig.store.start


def absent(rig: Rig, expiry_s: int) -> None:
    """A session whose client has gone."""
    held = rig.ask(OpenSession("g", "c", True, expiry_s, b""))
    assert isinstance(held, OpenedSession)
    rig.ask(SaveSessions("g", (SessionSave("c", held.epoch, RELEASED, expiry_s),)))


def retained(rig: Rig) -> list[str]:
    rig.sync()
    reply = rig.ask(FetchRetained("#"))
    return [message.mqtt_topic for _, message in decode_batch(reply.count, reply.body)]


def jump(rig: Rig, jump_ms: int, restart: str) -> Rig:
    """The clock jumps; and the broker, or the machine, may start again in that moment."""
    rig.clock.set_ms += jump_ms
    if not restart:
        return rig
    rig.leave_times()
    return rig.restarted(set_ms=rig.clock.set_ms, boot_id="two" if restart == "machine" else "one")


@pytest.mark.parametrize("jump_ms", JUMPS)
@pytest.mark.parametrize("restart", ["", "broker"])
def test_store_times_are_right_in_a_jump_and_after_it(jump_ms: int, restart: str) -> None:
    rig = started()
    expected = []
    for change_ms in (0, jump_ms, -jump_ms):
        rig = jump(rig, change_ms, restart if change_ms else "")
        for _ in range(3):
            pass_time(rig, 1.0)
            store(rig, b"x")
            expected.append(right_ms(rig))
    assert times(rig) == pytest.approx(expected, abs=1)
    assert rig.ask(SeekTime("t:0", expected[4])).offset in (4, 5)
    assert rig.times.figures()["penstock_store_time_ahead_s"] == 0


@pytest.mark.parametrize("jump_ms", JUMPS)
@pytest.mark.parametrize("restart", ["", "broker", "machine"])
def test_a_jump_removes_no_history_ends_no_session_and_takes_no_retained_message(jump_ms: int, restart: str) -> None:
    rig = started()
    start = filled(rig)
    absent(rig, 3600)
    store(rig, b"kept", "kept", 3600, FLAG_RETAIN)
    for change_ms in (jump_ms, 0, -jump_ms):  # the middle one: twice in a life that begins on the wrong clock
        rig = jump(rig, change_ms, restart)
        pass_time(rig, 10.0)
        store(rig, b"x", "other", None, FLAG_RETAIN)
        assert (rig.store.start, rig.state.sessions.get("c") is not None) == (start, True)
        assert retained(rig) == ["kept", "other"]
    pass_time(rig, 600.0)
    assert (rig.store.start, rig.state.sessions.get("c") is not None) == (start, True)
    assert retained(rig) == ["kept", "other"]


def test_retention_and_sessions_follow_a_jump_that_was_right_when_it_has_stood_for_both_their_times() -> None:
    rig = started()
    start = filled(rig)
    rig = jump(rig, 30 * DAY_MS, "")
    pass_time(rig, STANDS_S + AGES_S - 60)
    assert rig.store.start == start
    pass_time(rig, 120.0)
    assert rig.store.start > start


@pytest.mark.parametrize("off_s", [7200, 30 * 86_400])
def test_a_machine_that_was_off_has_right_store_times_at_once_and_ends_what_is_over_after_an_hour(off_s: int) -> None:
    rig = started(retention_s=3600.0)
    start = filled(rig)
    absent(rig, 7000)
    rig.leave_times()
    rig = rig.restarted(set_ms=rig.clock.set_ms + off_s * 1000, boot_id="two")
    store(rig, b"x")
    assert times(rig)[-1] == rig.clock.wall_ms()
    assert rig.times.figures()["penstock_ages_behind_s"] == pytest.approx(off_s, abs=5)
    pass_time(rig, 3500.0)
    assert (rig.store.start, rig.state.sessions.get("c") is not None) == (start, True)
    pass_time(rig, AGES_S - 3500.0 + 60.0)
    assert rig.state.sessions.get("c") is None
    assert rig.store.start > start
    assert set(rig.times.figures().values()) == {0.0}


def test_a_client_that_comes_back_before_its_absence_is_known_has_its_session_and_keeps_it() -> None:
    rig = started()
    absent(rig, 3600)
    rig = rig.restarted(set_ms=rig.clock.set_ms + 7_200_000, boot_id="two")
    pass_time(rig, 60.0)
    assert rig.ask(OpenSession("g", "c", False, 3600, b"")).present
    pass_time(rig, AGES_S + 60.0)
    assert rig.state.sessions.get("c") is not None


def test_a_log_of_an_older_version_that_is_ahead_of_the_clock_gets_right_again_without_going_back() -> None:
    ahead_ms = 2 * HOUR_MS
    rig = started()
    rig.store.append([], 0)
    record = encode_record(b"t", b"x", b"")
    rig.service.handle(Append(1, False, record), rig.clock.now, right_ms(rig) + ahead_ms)  # as such a version did
    rig.sync()
    rig = rig.restarted(boot_id="two")
    assert rig.times.figures()["penstock_store_time_ahead_s"] == pytest.approx(7200, abs=5)
    for _ in range(8):
        store(rig, b"x")
        pass_time(rig, 600.0)
    shown = times(rig)
    assert shown == sorted(shown)
    assert shown[2] - shown[1] == pytest.approx(600_000, rel=0.95)  # slow, but it goes on
    pass_time(rig, 4000.0)
    store(rig, b"x")
    assert times(rig)[-1] == right_ms(rig)
    assert rig.times.figures()["penstock_store_time_ahead_s"] == 0


@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, 30 * DAY_MS])
def test_what_is_retained_in_a_log_that_is_ahead_lasts_as_long_as_its_expiry_says(ahead_ms: int) -> None:
    rig = started()
    store(rig, b"old", "old", 3600, FLAG_RETAIN)
    record = encode_record(b"t", b"x", b"", flag=0)
    rig.service.handle(Append(1, False, record), rig.clock.now, right_ms(rig) + ahead_ms)
    rig.sync()
    rig = rig.restarted(boot_id="two")
    store(rig, b"short", "short", 3, FLAG_RETAIN)
    assert retained(rig) == ["old", "short"]
    pass_time(rig, 4.0)
    store(rig, b"x", "other", None, FLAG_RETAIN)
    assert retained(rig) == ["old", "other"]
    pass_time(rig, 3600.0)
    store(rig, b"y", "other", None, FLAG_RETAIN)
    assert retained(rig) == ["other"]


def test_the_broker_tells_of_a_jump_in_its_figures_until_it_is_over() -> None:
    rig = started()
    figures = rig.guard.figures
    assert figures() == {"process_clock_jump_s": 0.0, "process_clock_jumps_total": 0}
    rig.clock.set_ms += HOUR_MS
    pass_time(rig, 1.0)
    assert figures() == {"process_clock_jump_s": pytest.approx(3600, abs=1), "process_clock_jumps_total": 1}
    rig.clock.set_ms -= HOUR_MS
    pass_time(rig, 20.0)
    assert figures() == {"process_clock_jump_s": 0.0, "process_clock_jumps_total": 1}
