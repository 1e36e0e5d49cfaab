"""What brokers are told of names, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from gateway.brokers import Broker
from gateway.delivery import position_holds
from gateway.delivery.position_holds import LEASE_S, PositionHolds
from penstock.errors import Busy, Fenced, LogReplaced, PenstockError, Unavailable
from penstock.protocol.requests.groups import HeldOffsets, HoldOffsets, Progress
from penstock.protocol.requests.request import Request, Result


class Asked:
    """A broker that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[HoldOffsets, Callable[[Result], None]]] = []
        self.log_id = ""
        self.name = "broker-a"

    def submit(self, request: Request, on_result: Callable[[Result], None]) -> None:
        assert isinstance(request, HoldOffsets)
        self.asked.append((request, on_result))

    def take(self) -> list[HoldOffsets]:
        """What was asked; all of it is answered: the position is where it should be."""
        asked, self.asked = self.asked, []
        for request, on_result in asked:
            on_result(HeldOffsets(request.progress, self.log_id))
        return [request for request, _ in asked]

    def refuse(self, error: PenstockError) -> None:
        asked, self.asked = self.asked, []
        for _, on_result in asked:
            on_result(error)


class Holding:
    """One name."""

    def __init__(self) -> None:
        self.broker = Asked()
        self.group = (cast(Broker, self.broker), "billing")
        self.floors: dict[str, int] = {"t:0": 1}
        self.set_back: list[str] = []
        self.holds = PositionHolds(
            "gw/1", lambda _, queue: self.floors.get(queue), lambda _, queue: self.set_back.append(queue)
        )
        self.holds.keep(self.group)
        self.stir()

    def stir(self) -> None:
        self.holds.stir(self.group, list(self.floors))

    def told(self) -> list[HoldOffsets]:
        self.holds.flush()
        return self.broker.take()


def said(lease_s: float, *rows: tuple[str, int]) -> HoldOffsets:
    return HoldOffsets("billing", "gw/1", lease_s, tuple(Progress(queue, floor, 0) for queue, floor in rows))


def test_a_broker_is_told_what_has_changed_once() -> None:
    one = Holding()
    assert one.told() == [said(LEASE_S, ("t:0", 1))]
    one.stir()
    assert one.told() == []
    one.floors["t:0"] = 2
    assert one.told() == [], "nobody has said that it may have changed"
    one.stir()
    assert one.told() == [said(LEASE_S, ("t:0", 2))]
    assert (one.holds.commits, one.holds.refused) == (2, 0)


def test_leases_are_renewed_with_all_there_is_to_say() -> None:
    one = Holding()
    one.told()
    assert one.holds.is_time(1000.0)
    assert not one.holds.is_time(1004.9)
    assert one.holds.is_time(1005.0)
    one.holds.beat()
    assert one.told() == [said(LEASE_S, ("t:0", 1))]
    assert one.holds.commits == 1


def test_one_report_of_a_name_is_under_way_at_a_time() -> None:
    one = Holding()
    one.holds.flush()
    one.floors["t:0"] = 2
    one.stir()
    one.holds.beat()
    one.holds.flush()
    assert one.broker.take() == [said(LEASE_S, ("t:0", 1))]
    assert one.told() == [said(LEASE_S, ("t:0", 2))]


def test_a_subscription_that_is_about_to_begin_holds_the_position_until_it_has() -> None:
    one = Holding()
    one.told()
    answers: list[Result] = []
    request, answer = one.holds.ask(one.group, "new", ["t:1"])
    one.group[0].submit(request, lambda result: answers.append(answer(result)))
    assert one.broker.take() == [said(LEASE_S, ("t:1", -1), ("t:0", -1))]
    assert answers == [HeldOffsets((Progress("t:1", -1, 0),))]
    one.floors["t:1"] = 2
    one.stir()
    assert one.told() == [said(LEASE_S, ("t:0", 1), ("t:1", -1))], "others are in its queue, and it is in no other"
    one.holds.beat()
    assert one.told() == [said(LEASE_S, ("t:0", 1), ("t:1", -1))]
    one.holds.begun(one.group, "new")
    assert one.told() == [said(LEASE_S, ("t:0", 1), ("t:1", 2))]


def test_the_last_word_is_said_until_it_is_heard() -> None:
    one = Holding()
    one.told()
    one.floors["t:0"] = 2
    one.stir()
    one.holds.work_out(one.group)
    one.floors.clear()
    one.holds.leave(one.group)
    one.holds.flush()
    one.broker.refuse(Unavailable("away"))
    assert one.told() == [said(0.0, ("t:0", 2))]
    assert one.told() == []
    assert len(one.holds) == 0


def test_a_name_that_is_used_again_while_its_last_word_is_under_way_is_held_again() -> None:
    one = Holding()
    one.told()
    one.holds.leave(one.group)
    one.holds.flush()
    one.holds.keep(one.group)
    assert one.broker.take() == [said(0.0, ("t:0", 1))]
    assert one.told() == [said(LEASE_S, ("t:0", 1))]


def test_what_is_refused_is_counted_and_said_again_with_the_next_beat_what_is_lost_at_once() -> None:
    one = Holding()
    one.holds.flush()
    one.broker.refuse(Unavailable("away"))
    one.holds.flush()
    one.broker.refuse(Fenced("a native consumer holds it"))
    assert one.told() == []
    assert one.holds.refused == 1
    one.holds.beat()
    one.holds.flush()
    one.broker.refuse(Fenced("a native consumer holds it"))
    assert one.holds.refused == 1
    one.holds.beat()
    assert one.told() == [said(LEASE_S, ("t:0", 1))]


def test_what_there_is_no_room_for_is_counted_as_refused_and_said_again_with_the_next_beat_the_last_word_at_once() -> (
    None
):
    one = Holding()
    one.holds.flush()
    one.broker.refuse(Busy("there are so many groups"))
    assert one.told() == []
    assert one.holds.refused == 1
    one.holds.beat()
    assert one.told() == [said(LEASE_S, ("t:0", 1))]
    one.holds.leave(one.group)
    one.holds.flush()
    one.broker.refuse(Busy("so many requests wait"))
    assert one.told() == [said(0.0, ("t:0", 1))]


def test_a_position_that_was_set_back_since_it_was_heard_of_is_told_once() -> None:
    one = Holding()
    one.holds.flush()
    [(_, answer)] = one.broker.asked
    answer(HeldOffsets((Progress("t:0", 1, 3),)))
    assert one.set_back == []
    one.broker.asked.clear()
    for _ in range(2):
        one.holds.beat()
        one.holds.flush()
        [(request, answer)] = one.broker.asked
        one.broker.asked.clear()
        answer(HeldOffsets((Progress("t:0", 0, 4),)))
    assert one.set_back == ["t:0"]
    assert request.progress == (Progress("t:0", 1, 4),)


@pytest.mark.interpreted
def test_much_is_told_little_by_little_all_in_their_turn_and_last_words_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(position_holds, "ROWS_MAX", 2)
    one = Holding()
    one.told()
    names = [(one.group[0], name) for name in "abcde"]
    for group in names:
        one.holds.keep(group)
        one.holds.stir(group, one.floors)
    assert [told.group for told in one.told()] == ["a", "b"]
    one.holds.stir(names[0], one.floors)
    one.floors["t:0"] = 2
    one.holds.flush()
    assert [request.group for request, _ in one.broker.asked] == ["c", "d"]
    one.broker.refuse(Unavailable("away"))
    one.holds.leave(names[1])
    assert [told.group for told in one.told()] == ["e", "a", "b"], "who was refused comes behind them"
    assert [told.group for told in one.told()] == ["c", "d"]


def test_offsets_are_told_with_the_log_that_they_are_in() -> None:
    holding = Holding()
    holding.broker.log_id = "a"
    assert [request.log_id for request in holding.told()] == [""]
    holding.floors["t:0"] = 2
    holding.stir()
    assert [request.log_id for request in holding.told()] == ["a"]


def test_in_another_log_what_stands_has_no_say_any_more_and_the_position_begins_anew() -> None:
    holding = Holding()
    holding.broker.log_id = "a"
    holding.told()
    holding.floors["t:0"] = 2
    holding.stir()
    holding.holds.flush()
    holding.broker.refuse(LogReplaced("another log"))
    assert holding.set_back == ["t:0"]
    holding.floors = {}
    holding.broker.log_id = "b"
    holding.stir()
    [request] = holding.told()
    assert (request.progress, request.log_id) == ((), "")
    holding.floors = {"t:0": 5}
    holding.stir()
    [request] = holding.told()
    assert (request.progress, request.log_id) == ((Progress("t:0", 5, 0),), "b")


def test_a_subscription_that_asks_in_the_old_log_hears_that_it_is_to_ask_again() -> None:
    holding = Holding()
    holding.broker.log_id = "a"
    holding.told()
    request, answer = holding.holds.ask(holding.group, object(), ["t:0"])
    assert request.log_id == "a"
    assert isinstance(answer(LogReplaced("another log")), Unavailable)
    request, _ = holding.holds.ask(holding.group, object(), ["t:0"])
    assert request.log_id == ""


def test_the_last_word_in_another_log_ends_the_hold() -> None:
    holding = Holding()
    holding.broker.log_id = "a"
    holding.told()
    holding.holds.leave(holding.group)
    holding.holds.flush()
    holding.broker.refuse(LogReplaced("another log"))
    assert [request.lease_s for request in holding.told()] == [0.0]
    assert len(holding.holds) == 0
