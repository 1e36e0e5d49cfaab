"""Twin of broker/shares/requests.py, on a broker without a network."""

from __future__ import annotations

from typing import Any

import pytest

from broker.filters import fold as filters
from broker.filters.fold import Filters
from broker.kernel.fold import fact_record
from broker.sessions.fold import holder
from broker.shares.requests import ShareRequests
from broker.store.segment import segment_path
from penstock.errors import Busy, InvalidRequest, InvalidTopic, PenstockError, QueueNotFound, StorageFull
from penstock.protocol.message import ENTRY, Message
from penstock.protocol.requests.filters import CloseFilters, KeepFilters, OpenedFilters, OpenFilters
from penstock.protocol.requests.messages import Pulled
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.sessions import EndSession, OpenSession
from penstock.protocol.requests.shares import ListShares, SettleShared, SharesPage, ShareState, TakeShared
from tests.broker.broker_rig import Rig, append, bodies, now, parked

SHARE = "$share/g/a/+"
ORDERED = "$oshare/g/a/+"


def opened(rig: Rig, *shares: str, owner: str = "gw") -> None:
    answer = rig.ask(OpenFilters(owner, shares or (SHARE,)))
    assert isinstance(answer, OpenedFilters)
    assert answer.refused == ()


def published(rig: Rig, *numbers: int, keys: tuple[str, ...] = ()) -> None:
    messages = [
        Message(topic="a", body=b"%d" % number, mqtt_topic=f"a/{number}", key=keys[at] if keys else "k")
        for at, number in enumerate(numbers)
    ]
    rig.ask(append(*messages))


def take(rig: Rig, taker: str = "t", share: str = SHARE, count: int = 100, **more: Any) -> Pulled:
    taken = rig.ask(TakeShared(share, taker, count, **more))
    assert isinstance(taken, Pulled)
    return taken


def offsets(pulled: Pulled) -> list[int]:
    rows = ENTRY.iter_unpack(bytes(pulled.body[: pulled.count * ENTRY.size]))
    return [offset for offset, _, _, _ in rows]


def settle(rig: Rig, taken: Pulled, taker: str = "t", share: str = SHARE) -> None:
    assert rig.ask(SettleShared(share, taker, settled=tuple(offsets(taken)))) == Done()


def test_takers_divide_the_messages_between_them() -> None:
    rig = Rig()
    opened(rig)
    published(rig, 1, 2, 3)
    assert bodies(take(rig, "t", count=2)) == [b"1", b"2"]
    assert bodies(take(rig, "u", count=2)) == [b"3"]
    assert bodies(take(rig, "u")) == []


def test_a_share_that_the_full_disk_refused_is_begun_when_it_is_opened_again() -> None:
    rig = Rig()
    opened(rig, "a/+", owner="h")
    used = rig.disk.used()
    for room in range(0, 400, 20):  # wherever the disk is full: nothing is held that has not begun
        rig.disk.capacity = used
        while not isinstance(rig.ask(append(Message(topic="b", body=bytes(room + 1)))), StorageFull):
            pass
        share = f"$share/{room}/a/+"
        rig.ask(OpenFilters("gw", (share,)))
        assert (share in rig.state.filters) == (rig.state.shares.get(share) is not None)
        rig.disk.capacity = None
        opened(rig, share)
        published(rig, room)
        assert bodies(take(rig, share=share)) == [b"%d" % room]
        used = rig.disk.used()


def test_a_share_of_which_a_power_loss_left_no_beginning_is_begun_when_it_is_opened_again() -> None:
    """Nobody was told that it is open, so its session loses nothing by beginning later."""
    rig = Rig()
    session = holder(1)
    opened(rig, "a/+", owner=holder(2))
    rig.store.append([fact_record(filters.TOPIC, Filters.fact(filters.OPEN, session, [SHARE]))], rig.clock.wall_ms())
    published(rig, 1)
    rig = rig.restarted()
    opened(rig, owner=session)
    assert bodies(take(rig)) == []
    published(rig, 2)
    taken = take(rig)
    assert bodies(taken) == [b"2"]
    settle(rig, taken)
    opened(rig, owner=session)
    published(rig, 3)
    rig = rig.restarted()
    opened(rig, owner=session)
    rig.clock.now += 5.0
    rig.dispatch.tick()
    assert bodies(take(rig)) == [b"3"], "what was settled stays settled"


def damaged(rig: Rig, position: int) -> Rig:
    """The same folder at the next start, where the record at this position has rotted meanwhile."""
    rig.store.seal(rig.clock.wall_ms())
    rig.sync()
    rig.disk.kill()
    rig.disk.flip(segment_path(0), position + 40)
    rig = rig.restarted()
    assert len(rig.store.damage) == 1
    rig.clock.now += 5.0
    rig.dispatch.tick()
    return rig


def test_what_was_settled_in_order_is_so_behind_damage_too_at_each_later_start() -> None:
    rig = Rig()
    opened(rig)
    rot = rig.store.written
    for number in range(1, 7):
        published(rig, number)
    settle(rig, take(rig, count=2))
    settle(rig, take(rig, count=2))
    passed = take(rig, count=1)
    settle(rig, take(rig))
    assert bodies(passed) == [b"5"]
    rig = damaged(rig, rot)
    again = take(rig)
    assert bodies(again) == [b"5", b"6"], "beyond the first that is not settled nobody knows"
    settle(rig, again)
    rig = rig.restarted()
    rig.clock.now += 5.0
    rig.dispatch.tick()
    assert (take(rig).count, rig.theme(ShareRequests).lost) == (0, 0)
    published(rig, 7)
    assert bodies(take(rig)) == [b"7"]


def test_damage_gives_a_share_nothing_that_was_stored_before_it_began() -> None:
    rig = Rig()
    opened(rig, "a/+", owner="h")
    rot = rig.store.written
    published(rig, 1)
    published(rig, 2)
    opened(rig)
    published(rig, 3)
    rig = damaged(rig, rot)
    assert bodies(take(rig)) == [b"3"]


def test_each_group_has_its_own_copy_and_begins_when_it_is_opened() -> None:
    rig = Rig()
    opened(rig)
    published(rig, 1)
    opened(rig, "$share/h/a/+")
    published(rig, 2)
    assert bodies(take(rig)) == [b"1", b"2"]
    assert bodies(take(rig, share="$share/h/a/+")) == [b"2"]


def test_a_take_waits_for_a_message_to_be_durable_or_given_back() -> None:
    rig = Rig()
    opened(rig)
    first = rig.submit(TakeShared(SHARE, "t", 10, 5.0))
    second = rig.submit(TakeShared(SHARE, "u", 10, 5.0), session=2)
    appended = rig.submit(append(Message(topic="a", body=b"1", mqtt_topic="a/1")))
    assert (first, second, appended) == ([], [], [])
    rig.sync()
    assert (bodies(first[0]), second) == ([b"1"], [])  # type: ignore[arg-type]
    rig.ask(SettleShared(SHARE, "t", returned=tuple(offsets(first[0]))))  # type: ignore[arg-type]
    assert bodies(second[0]) == [b"1"]  # type: ignore[arg-type]


def test_a_take_that_nobody_answers_ends_empty() -> None:
    rig = Rig()
    opened(rig)
    waiting = rig.submit(TakeShared(SHARE, "t", 10, 5.0))
    rig.clock.now += 5.0
    rig.dispatch.tick()
    assert waiting[0].count == 0  # type: ignore[union-attr]


def test_what_a_silent_taker_has_goes_to_another() -> None:
    rig = Rig(share_lease_s=15.0)
    opened(rig)
    published(rig, 1)
    assert bodies(take(rig)) == [b"1"]
    waiting = rig.submit(TakeShared(SHARE, "u", 10, 60.0), session=2)
    rig.clock.now += 10.0
    rig.ask(SettleShared("", "t"))
    rig.ask(SettleShared("", "u"))
    rig.clock.now += 10.0
    rig.ask(SettleShared("", "u"))
    rig.dispatch.tick()
    assert waiting == []
    rig.clock.now += 5.0
    rig.dispatch.tick()
    assert bodies(waiting[0]) == [b"1"]  # type: ignore[arg-type]
    assert rig.service.figures()["penstock_shared_redelivered_total"] == 1


def test_settling_after_the_lease_is_lost_is_harmless() -> None:
    rig = Rig()
    opened(rig)
    published(rig, 1, 2)
    first = take(rig)
    rig.clock.now += 20.0
    rig.dispatch.tick()
    again = take(rig, "u")
    assert bodies(again) == [b"1", b"2"]
    settle(rig, first)
    settle(rig, again, "u")
    assert rig.ask(SettleShared(SHARE, "u", returned=tuple(offsets(again)))) == Done()
    assert bodies(take(rig, "v")) == []
    assert rig.service.figures()["penstock_shared_unsettled"] == 0


def test_what_is_settled_stays_settled_after_kill_9_and_the_rest_comes_again() -> None:
    rig = Rig()
    opened(rig)
    published(rig, 1, 2, 3, 4)
    taken = take(rig)
    rig.ask(SettleShared(SHARE, "t", settled=(offsets(taken)[0], offsets(taken)[2])))
    again = rig.restarted()
    again.clock.now += 5.0
    again.dispatch.tick()
    assert bodies(take(again)) == [b"2", b"4"]


def test_after_a_restart_takers_keep_what_they_say_they_have() -> None:
    rig = Rig()
    opened(rig)
    published(rig, 1, 2, 3)
    held = offsets(take(rig, "t", count=2))
    again = rig.restarted()
    waiting = again.submit(TakeShared(SHARE, "u", 10, 30.0), session=2)
    again.sync()
    assert waiting == []
    assert bodies(take(again, "t", resumes=True, held=tuple(held[1:]))) == []
    again.clock.now += 3.0
    again.dispatch.tick()
    assert bodies(waiting[0]) == [b"1", b"3"]  # type: ignore[arg-type]
    again.ask(SettleShared(SHARE, "t", settled=tuple(held[1:])))
    assert again.service.figures()["penstock_shared_unsettled"] == 2


def test_after_a_restart_a_share_that_had_ended_and_begun_again_waits_for_its_takers_too() -> None:
    rig = Rig()
    opened(rig)
    rig.ask(CloseFilters("gw", (SHARE,)))
    opened(rig)
    published(rig, 1, 2)
    assert bodies(take(rig)) == [b"1", b"2"]
    rig = rig.restarted()
    assert bodies(take(rig, "u")) == []


@pytest.mark.interpreted
@pytest.mark.parametrize(("share", "reads_max"), [(SHARE, 1), (ORDERED, 4)])  # one of them for the take itself
def test_what_a_taker_says_it_has_is_not_read_message_by_message(
    share: str, reads_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig()
    opened(rig, share)
    published(rig, *range(60))
    held = offsets(take(rig, share=share))
    del held[20]
    rig = rig.restarted()
    reads: list[int] = []
    read = rig.store.read

    def counted(queue: str, offset: int, count_max: int, bytes_max: int) -> Pulled:
        reads.append(offset)
        return read(queue, offset, count_max, bytes_max)

    monkeypatch.setattr(rig.store, "read", counted)
    take(rig, share=share, resumes=True, held=tuple([-7, *held, 60, 900]))
    assert len(reads) <= reads_max
    assert rig.service.figures()["penstock_shared_unsettled"] == 59


def test_a_taker_that_says_what_it_has_in_several_requests_keeps_it_all() -> None:
    rig = Rig()
    opened(rig)
    published(rig, *range(9))
    held = offsets(take(rig, count=8))
    del held[1], held[-1]
    assert take(rig, count=0, resumes=True, held=tuple(held[:3]), before=held[3]).count == 0
    assert bodies(take(rig, "u")) == [b"1", b"8"]
    assert bodies(take(rig, resumes=True, held=tuple(held[3:]), since=held[3])) == [b"7"]


def test_a_taker_that_lost_its_link_gets_again_what_it_never_saw() -> None:
    rig = Rig()
    opened(rig)
    published(rig, 1, 2, 3)
    seen = take(rig, count=2)
    take(rig)
    again = take(rig, resumes=True, held=tuple(offsets(seen)))
    assert bodies(again) == [b"3"]


def test_nobody_settles_what_is_not_there_yet() -> None:
    rig = Rig()
    opened(rig)
    published(rig, 1)
    first = offsets(take(rig))[0]
    rig.ask(SettleShared(SHARE, "t", settled=tuple(range(first, first + 5))))
    published(rig, 2)
    assert bodies(take(rig)) == [b"2"]
    assert take(rig, resumes=True, held=(first + 900, -4)).count == 1


def test_messages_of_one_key_stay_with_one_taker_until_they_are_settled() -> None:
    rig = Rig()
    opened(rig, ORDERED)
    published(rig, 1, 2, 3, keys=("x", "y", "x"))
    one = take(rig, "t", ORDERED, count=1)
    other = take(rig, "u", ORDERED)
    assert (bodies(one), bodies(other)) == ([b"1"], [b"2"])
    waiting = rig.submit(TakeShared(ORDERED, "u", 10, 9.0), session=2)
    settle(rig, one, share=ORDERED)
    assert bodies(waiting[0]) == [b"3"]  # type: ignore[arg-type]


def test_without_a_key_the_mqtt_name_orders() -> None:
    rig = Rig()
    opened(rig, ORDERED)
    names = ("a/x", "a/y", "a/x")
    rig.ask(append(*[Message(topic="a", body=b"%d" % at, mqtt_topic=name) for at, name in enumerate(names)]))
    take(rig, "t", ORDERED, count=1)
    assert bodies(take(rig, "u", ORDERED)) == [b"1"]


def test_a_share_ends_with_its_last_owner_and_begins_anew() -> None:
    rig = Rig()
    opened(rig)
    opened(rig, owner="other")
    published(rig, 1)
    waiting = rig.submit(TakeShared(SHARE, "t", 10, 30.0, True))
    assert waiting[0].count == 1  # type: ignore[union-attr]
    left = rig.submit(TakeShared(SHARE, "t", 10, 30.0))
    rig.ask(CloseFilters("gw", (SHARE,)))
    assert left == []
    rig.ask(CloseFilters("other", (SHARE,)))
    assert isinstance(left[0], QueueNotFound)
    assert rig.ask(SettleShared(SHARE, "t", settled=(1,))) == Done()
    assert (len(rig.state.shares), len(rig.state.filters)) == (0, 0)
    opened(rig)
    published(rig, 2)
    assert bodies(take(rig)) == [b"2"]


def test_a_share_is_held_by_a_session_that_is_away() -> None:
    rig = Rig()
    session = rig.ask(OpenSession("gw", "c", False, 100, b""))
    opened(rig, owner=holder(session.generation))
    opened(rig)
    rig.ask(CloseFilters("gw", (SHARE,)))
    published(rig, 1)
    again = rig.restarted()
    again.clock.now += 5.0
    again.dispatch.tick()
    assert bodies(take(again)) == [b"1"]
    again.ask(EndSession("c", session.epoch))
    assert isinstance(again.ask(TakeShared(SHARE, "t", 1)), QueueNotFound)


def test_a_share_goes_with_the_lease_of_the_gateway_that_held_it() -> None:
    rig = Rig(owner_lease_s=10.0)
    opened(rig)
    rig.ask(KeepFilters("gw", 5.0))
    rig.clock.now += 6.0
    rig.dispatch.tick()
    assert isinstance(rig.ask(TakeShared(SHARE, "t", 1)), QueueNotFound)


def test_no_more_than_the_limit_of_shares_is_open() -> None:
    rig = Rig(shares_max=2)
    opened(rig, "$share/g/a", "$share/h/a")
    assert rig.refused("gw", "$share/i/a", "b") == {"$share/i/a": Busy}
    opened(rig, "$share/g/a", owner="other")


def test_no_more_messages_than_the_limit_are_on_their_way() -> None:
    rig = Rig(share_unsettled_max=3)
    opened(rig)
    published(rig, 1, 2, 3, 4)
    taken = take(rig)
    waiting = rig.submit(TakeShared(SHARE, "u", 10, 30.0))
    assert (taken.count, waiting) == (3, [])
    settle(rig, taken)
    assert bodies(waiting[0]) == [b"4"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "request_",
    [TakeShared(SHARE, "t", 0), TakeShared(SHARE, "t", 1, -1.0), TakeShared(SHARE, "", 1), SettleShared(SHARE, "")],
)
def test_what_makes_no_sense_is_refused(request_: Any) -> None:
    rig = Rig()
    opened(rig)
    assert isinstance(now(rig.handle(request_)), InvalidRequest)


@pytest.mark.parametrize("share", ["$share/g", "$share//a", "$share/g+/a", "$oshare/g/a#"])
def test_a_share_needs_a_name_and_a_legal_filter(share: str) -> None:
    assert Rig().refused("gw", share) == {share: InvalidTopic}


def test_a_plain_filter_is_no_share() -> None:
    rig = Rig()
    rig.ask(OpenFilters("gw", ("a/+",)))
    assert isinstance(now(rig.handle(TakeShared("a/+", "t", 1))), PenstockError)


def test_a_waiting_take_is_woken_by_queue_and_share() -> None:
    rig = Rig()
    opened(rig)
    assert parked(rig.handle(TakeShared(SHARE, "t", 1, 5.0))).wakers == ("~filter:a/+", f"share {SHARE}")


def test_how_a_share_stands_is_told() -> None:
    rig = Rig()
    assert rig.ask(ListShares()) == SharesPage((), "")
    opened(rig)
    opened(rig, owner="~session/1")
    assert rig.ask(ListShares()) == SharesPage((ShareState(SHARE, 0, 0, 0, 1, 1),), "")
    published(rig, 1, 2, 3, 4, 5)
    settle(rig, take(rig, count=1))
    first = offsets(take(rig, count=2))
    rig.ask(SettleShared(SHARE, "t", returned=(first[0],)))
    assert rig.ask(ListShares()).shares == (ShareState(SHARE, lag=4, on_way=1, owed=1, gateways=1, sessions=1),)


def test_shares_are_told_a_page_at_a_time() -> None:
    rig = Rig()
    opened(rig, *[f"$share/{name}/a" for name in "cab"])
    found, after = [], ""
    for _ in range(2):
        page = rig.ask(ListShares(after, count_max=2))
        found.append([row.share for row in page.shares])
        after = page.after
    assert found == [["$share/a/a", "$share/b/a"], ["$share/c/a"]]
    assert after == ""
    assert isinstance(rig.ask(ListShares(count_max=0)), InvalidRequest)


def test_a_page_of_shares_with_long_filters_has_fewer_of_them() -> None:
    rig = Rig(segment_bytes=1 << 24)
    shares = sorted([f"$share/g/{n}" + "x" * 65_000 for n in range(40)])
    opened(rig, *shares[:20])
    opened(rig, *shares[20:])
    found, after, pages = [], "", 0
    while pages == 0 or after:
        page = rig.ask(ListShares(after))
        assert sum([len(row.share) for row in page.shares]) <= 1 << 20
        found += [row.share for row in page.shares]
        after, pages = page.after, pages + 1
    assert (found, pages) == (shares, 3)
