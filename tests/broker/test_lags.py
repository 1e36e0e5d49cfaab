"""Twin of broker/lags.py, on a broker without a network."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from broker import lags
from broker.lags import Lags
from penstock.protocol.message import Message
from penstock.protocol.requests.filters import CloseFilters, OpenFilters
from penstock.protocol.requests.groups import CommitOffsets, QueueOffset
from penstock.protocol.requests.sessions import CONNECTED, RELEASED, EndSession, OpenSession, SaveSessions, SessionSave
from penstock.protocol.requests.shares import SettleShared, TakeShared
from tests.broker.broker_rig import Rig, append

SHARE = "$share/g/a/+"


def published(rig: Rig, count: int, topic: str = "a") -> None:
    for at in range(0, count, 100):
        rig.ask(append(*[Message(topic, b"x", mqtt_topic=f"{topic}/1")] * min(100, count - at)))


def saved(rig: Rig, client: str, state: int, **places: int) -> int:
    """A session is saved with its places in the queues of the filters ``topic/+`` here; gives its epoch."""
    opened = rig.ask(OpenSession("gw", client, False, 60, b""))
    rows = [[f"{topic}/+", rig.settings.name, at, 0, 0, []] for topic, at in places.items()]
    flow = msgpack.packb(
        [[*rows, [SHARE, rig.settings.name, 0, 0, 0, []], ["a/+", "elsewhere", 0, 0, 0, []]], [], [], 1]
    )
    rig.ask(SaveSessions("gw", (SessionSave(client, opened.epoch, state, 60, flow=flow),)))
    return int(opened.epoch)


def made() -> Rig:
    return Rig(segment_bytes=1 << 20)


def begin_of(rig: Rig, filter: str) -> int:
    return rig.store.bounds(f"~filter:{filter}").min


def figures(rig: Rig) -> dict[str, Any]:
    """As they are found the next time."""
    rig.clock.now += lags.EVERY_S
    rig.dispatch.tick()
    assert rig.theme(Lags)._look is None, "it is one slice"
    return {name.removeprefix("penstock_"): value for name, value in rig.theme(Lags).figures().items()}


def test_before_the_first_look_there_are_none_and_where_nobody_reads_all_are_0() -> None:
    rig = made()
    assert rig.theme(Lags).figures() == {}
    found = figures(rig)
    assert set(found.values()) == {0}
    assert found.keys() == {
        "shares_lag_messages",
        "shares_lag_messages_most",
        "shares_lagging",
        "shares_unattended",
        'sessions_lag_messages{client="connected"}',
        'sessions_lag_messages_most{client="connected"}',
        'sessions_lagging{client="connected"}',
        'sessions_lag_messages{client="away"}',
        'sessions_lag_messages_most{client="away"}',
        'sessions_lagging{client="away"}',
        "sessions_away",
        "sessions_unreadable",
        'unread_age_s{by="shares"}',
        'unread_age_s{by="sessions"}',
        'unread_age_s{by="groups"}',
    }
    assert rig.service.figures().items() >= rig.theme(Lags).figures().items()


def test_shares_lag_by_what_is_not_settled_and_the_age_is_that_of_the_oldest_of_it() -> None:
    rig = made()
    rig.ask(OpenFilters("gw", (SHARE, "$share/h/a/+")))
    published(rig, 2)
    rig.clock.now += 50.0
    published(rig, 1001)
    taken = rig.ask(TakeShared(SHARE, "t", 3))
    rig.ask(SettleShared(SHARE, "t", settled=(taken.next - 3, taken.next - 2)))
    found = figures(rig)
    assert (found["shares_lag_messages"], found["shares_lag_messages_most"]) == (1001 + 1003, 1003)
    assert found["shares_lagging"] == 2
    assert found['unread_age_s{by="shares"}'] == 50.0 + lags.EVERY_S
    rig.ask(CloseFilters("gw", ("$share/h/a/+",)))
    found = figures(rig)
    assert (found["shares_lag_messages"], found["shares_lag_messages_most"]) == (1001, 1001)
    assert found['unread_age_s{by="shares"}'] == 2 * lags.EVERY_S
    rig.ask(SettleShared(SHARE, "t", settled=(taken.next - 1,)))
    assert figures(rig)["shares_lagging"] == 0, "1,000 are none too many"


def test_a_share_that_lags_and_that_only_sessions_hold_is_unattended() -> None:
    rig = made()
    rig.ask(OpenFilters("~session/1", (SHARE,)))
    assert figures(rig)["shares_unattended"] == 0, "it has no message"
    published(rig, 1)
    assert figures(rig)["shares_unattended"] == 1
    rig.ask(OpenFilters("gw", (SHARE,)))
    assert figures(rig)["shares_unattended"] == 0


def test_sessions_lag_by_what_is_behind_their_places_here_and_shares_are_not_counted_twice() -> None:
    rig = made()
    rig.ask(OpenFilters("gw", ("a/+", "b/+")))
    published(rig, 5, "b")
    rig.clock.now += 30.0
    published(rig, 1, "a")
    published(rig, 1002, "b")
    at_a, at_b = begin_of(rig, "a/+"), begin_of(rig, "b/+")
    saved(rig, "behind", CONNECTED, a=at_a, b=at_b + 5)
    saved(rig, "away", RELEASED, a=at_a)
    saved(rig, "level", RELEASED, a=at_a + 1, gone=0)
    found = figures(rig)
    assert found['sessions_lag_messages{client="connected"}'] == 1003
    assert found['sessions_lagging{client="connected"}'] == 1
    assert found['sessions_lag_messages{client="away"}'] == found['sessions_lag_messages_most{client="away"}'] == 1
    assert (found["sessions_away"], found['sessions_lagging{client="away"}']) == (2, 0)
    assert found['unread_age_s{by="sessions"}'] == lags.EVERY_S
    epoch = saved(rig, "oldest", CONNECTED, b=at_b + 4)
    assert figures(rig)['unread_age_s{by="sessions"}'] == 30.0 + 2 * lags.EVERY_S
    rig.ask(EndSession("oldest", epoch))
    assert figures(rig)['unread_age_s{by="sessions"}'] == 3 * lags.EVERY_S


def test_the_lag_of_a_session_whose_bytes_cannot_be_read_is_unknown_and_that_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = made()
    rig.ask(OpenFilters("gw", ("a/+",)))
    published(rig, 3)
    saved(rig, "good", RELEASED, a=begin_of(rig, "a/+"))
    opened = rig.ask(OpenSession("gw", "odd", False, 60, b""))
    rig.ask(SaveSessions("gw", (SessionSave("odd", opened.epoch, RELEASED, 60, flow=b"\xc1"),)))
    for _ in range(2):
        found = figures(rig)
        assert (found["sessions_unreadable"], found["sessions_away"]) == (1, 2)
        assert found['sessions_lag_messages{client="away"}'] == 3
    assert [record.getMessage() for record in caplog.records if record.name == "broker.lags"] == [
        "what was saved of 1 sessions cannot be read, of odd first"
    ]
    rig.ask(EndSession("odd", opened.epoch))
    assert figures(rig)["sessions_unreadable"] == 0


@pytest.mark.interpreted
def test_the_oldest_of_many_is_found_with_few_kept_in_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = made()
    topics = [f"t{at}" for at in range(10)]
    rig.ask(OpenFilters("gw", tuple(f"{topic}/+" for topic in topics)))
    for topic in topics:
        rig.clock.now += 1.0
        published(rig, 1, topic)
    at = {topic: begin_of(rig, f"{topic}/+") for topic in topics}
    for client, topic in enumerate([*topics[5:], *topics[:5]]):
        saved(rig, f"c{client}", RELEASED, **{topic: at[topic]})
    kept: list[int] = []
    keep_first = lags._keep_first

    def keep(places: dict[str, int], queue: str, offset: int) -> None:
        keep_first(places, queue, offset)
        kept.append(len(places))

    monkeypatch.setattr(lags, "_keep_first", keep)
    monkeypatch.setattr(lags, "PLACES_MAX", 3)
    assert figures(rig)['unread_age_s{by="sessions"}'] == 9.0 + lags.EVERY_S
    assert kept == [1, 2, 3] * 3 + [1]


def test_the_age_of_what_groups_need_is_told_as_soon_as_all_were_looked_at() -> None:
    rig = made()
    published(rig, 1)
    queue = next(f"a:{number}" for number in range(4) if rig.store.bounds(f"a:{number}").end)
    rig.ask(CommitOffsets("g", "", 0, (QueueOffset(queue, 0),)))
    rig.theme(Lags).tick(0.0, rig.clock.wall_ms(), 0)
    assert 'penstock_unread_age_s{by="groups"}' not in rig.theme(Lags).figures()
    assert figures(rig)['unread_age_s{by="groups"}'] == lags.EVERY_S
    rig.ask(CommitOffsets("g", "", 0, (QueueOffset(queue, 1),)))
    assert figures(rig)['unread_age_s{by="groups"}'] == 0


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
def test_a_clock_that_jumps_makes_no_message_older_or_younger(jump_ms: int) -> None:
    rig = made()
    rig.ask(OpenFilters("gw", (SHARE,)))
    published(rig, 1)
    rig.clock.set_ms += jump_ms
    assert figures(rig)['unread_age_s{by="shares"}'] == lags.EVERY_S


def test_no_tick_looks_at_more_than_a_slice_and_what_ends_meanwhile_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lags, "SLICE", 10)
    monkeypatch.setattr(lags, "FLOW_BYTES", 1 << 30)
    rig = made()
    shares = [f"$share/g{number:02d}/a/+" for number in range(20)]
    rig.ask(OpenFilters("gw", tuple(shares)))
    published(rig, 1)
    epochs = {number: saved(rig, f"c{number:02d}", RELEASED, a=begin_of(rig, "a/+")) for number in range(15)}
    rig.clock.now += lags.EVERY_S
    rig.dispatch.tick()
    ended = rig.theme(Lags)._shares.names[-1]
    rig.ask(CloseFilters("gw", (ended,)))
    rig.dispatch.tick()
    rig.dispatch.tick()
    last = rig.theme(Lags)._sessions.clients[-1]
    rig.ask(EndSession(last, epochs[int(last[1:])]))
    assert rig.theme(Lags).figures() == {}
    rig.dispatch.tick()
    found = rig.theme(Lags).figures()
    assert found["penstock_shares_lag_messages"] == 19
    assert found["penstock_sessions_away"] == 14
