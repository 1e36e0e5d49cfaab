from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from broker.groups import given_back
from broker.groups.given_back import Returns, given_back_of, property_for
from broker.store.records import Change
from broker.timers.fold import GivenBack
from broker.topics.fold import TopicGone
from penstock.errors import Fenced
from penstock.protocol.message import Message, decode_batch
from penstock.protocol.properties import GIVEN_BACK
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.groups import (
    CommitOffsets,
    DeleteGroup,
    JoinGroup,
    LeaveGroup,
    NoteAttempts,
    QueueOffset,
    Tried,
)
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.retries import Back, SendAllBack, SendBack, SentAllBack, SentBack
from penstock.protocol.requests.topics import DeleteTopic
from tests.broker.broker_rig import Rig, append
from tests.broker.groups.test_retries import generation, joined, messages, pass_s


def killed(rig: Rig) -> Rig:
    return rig.restarted()


def without_power(rig: Rig) -> Rig:
    rig.disk.lose_power()
    return rig.restarted()


@pytest.mark.parametrize("again", [killed, without_power])
@pytest.mark.parametrize(("delay_ms", "attempts_max"), [(5_000, 16), (0, 16), (0, 1)])
def test_what_is_given_back_again_is_stored_once_and_answered_as_before_also_after_a_restart(
    again: Callable[[Rig], Rig], delay_ms: int, attempts_max: int
) -> None:
    rig, now = joined()
    request = SendBack("g", "m", now, "orders:0", 0, delay_ms, attempts_max, "why")
    first = rig.ask(request)
    assert isinstance(first, SentBack)
    pass_s(rig, 0.5)
    assert rig.ask(request) == first
    rig = again(rig)
    rows = (Back("orders:0", 0, delay_ms, "why"),) * 2
    answer = rig.ask(SendAllBack("g", "m", generation(rig), rows, attempts_max))
    assert isinstance(answer, SentAllBack)
    assert [(row.attempt, row.due_ms, row.code) for row in answer.rows] == [(first.attempt, first.due_ms, 0)] * 2
    pass_s(rig, 10.0)
    assert len(messages(rig, "%DLQ%g:0" if attempts_max == 1 else "%RETRY%g:0")) == 1
    rig = again(rig)  # the retry has woken by now
    assert rig.ask(SendBack("g", "m", generation(rig), "orders:0", 0, delay_ms, attempts_max)) == first


def test_a_give_back_that_was_lost_with_the_power_is_stored_when_it_is_repeated() -> None:
    rig, now = joined()
    rig.submit(SendBack("g", "m", now, "orders:0", 0, 0))
    rig = without_power(rig)
    assert rig.ask(SendBack("g", "m", generation(rig), "orders:0", 0, 0)).attempt == 1
    assert len(messages(rig, "%RETRY%g:0")) == 1


def test_one_request_stores_a_message_once() -> None:
    rig, now = joined()
    rig.ask(SendAllBack("g", "m", now, (Back("orders:0", 0, 0, ""),) * 3))
    assert len(messages(rig, "%RETRY%g:0")) == 1


def test_each_group_gives_a_message_back_and_a_retry_is_another_message() -> None:
    rig, now = joined()
    rig.ask(SendBack("g", "m", now, "orders:0", 0, 0))
    assert rig.ask(SendBack("g", "m", generation(rig), "%RETRY%g:0", 0, 0)).attempt == 2
    assert [one.properties["ORIGIN_OFFSET"] for one in messages(rig, "%RETRY%g:0")] == ["0", "0"]
    assert rig.state.returns.get("h", "orders:0", 0) is None
    assert len(rig.state.returns) == 2


def test_it_is_known_until_the_position_passes_it_or_the_group_or_the_topic_goes() -> None:
    rig, now = joined()
    for _ in range(3):
        rig.ask(append(Message("orders", b"more")))
    for offset in (0, 1, 3):
        rig.ask(SendBack("g", "m", now, "orders:0", offset, 1_000 * offset))
    rig.ask(CommitOffsets("g", "m", now, (QueueOffset("orders:0", 1),)))
    known = [offset for offset in range(4) if rig.state.returns.get("g", "orders:0", offset)]
    assert (known, len(rig.state.returns)) == ([1, 3], 2)
    rig = rig.restarted()
    assert len(rig.state.returns) == 2
    rig.ask(CommitOffsets("g", "m", generation(rig), (QueueOffset("orders:0", 2),)))
    rig.ask(LeaveGroup("g", "m"))
    rig.ask(DeleteGroup("g"))
    assert len(rig.state.returns) == 0
    rig, now = joined()
    rig.ask(SendBack("g", "m", now, "orders:0", 0, 0))
    rig.ask(DeleteTopic("orders"))
    assert len(rig.state.returns) == 0


def test_what_the_group_has_passed_is_not_given_back() -> None:
    rig, now = joined()
    rig.ask(append(Message("orders", b"more")))
    first = rig.ask(SendBack("g", "m", now, "orders:0", 0, 0))
    rig.ask(CommitOffsets("g", "m", now, (QueueOffset("orders:0", 1),)))
    assert isinstance(first, SentBack)
    for rig_ in (rig, rig.restarted()):
        at = generation(rig_)
        assert isinstance(rig_.ask(SendBack("g", "m", at, "orders:0", 0, 0)), Fenced)
        answer = rig_.ask(SendAllBack("g", "m", at, (Back("orders:0", 0, 0, ""), Back("orders:0", 1, 9_000, ""))))
        assert [row.code for row in answer.rows] == [Fenced.code, 0]
    assert len(messages(rig_, "%RETRY%g:0")) == 1


def test_a_dead_letter_of_an_ordered_group_counts_all_attempts_that_were_noted() -> None:
    rig, _ = joined()
    rig.ask(LeaveGroup("g", "m"))
    at = rig.ask(JoinGroup("g", "m", ("orders",), 3600.0, ordered=True)).generation
    rig.ask(CommitOffsets("g", "m", at, (QueueOffset("orders:0", 0),)))
    rig.ask(NoteAttempts("g", "m", at, (Tried("orders:0", 0, 16),)))
    assert rig.ask(SendBack("g", "m", at, "orders:0", 0, attempts_max=1)) == SentBack(16, 0)
    pulled = rig.ask(Pull("%DLQ%g:0", 0))
    [(_, letter)] = decode_batch(pulled.count, pulled.body, MessageQueue("a", "%DLQ%g", 0))
    assert letter.attempts == 16


def test_a_client_cannot_say_that_a_message_was_given_back() -> None:
    rig, now = joined()
    said = property_for(GivenBack("g", "orders:0", 0, 7, 7))
    rig.ask(append(Message("orders", b"x", properties={GIVEN_BACK: said})))
    assert rig.ask(SendBack("g", "m", now, "orders:0", 0, 0)).attempt == 1
    rig.ask(SendBack("g", "m", now, "orders:0", 1, 0))
    assert messages(rig, "%RETRY%g:0")[1].properties[GIVEN_BACK] != said


def test_names_of_all_kinds_are_read_back() -> None:
    for group in ("g", "ä:b\x01\x02", "\ud800"):
        given = GivenBack(group, "a:b:3", 5, 2, 1_000)
        assert given_back_of(f"x\x01y\x02{GIVEN_BACK}\x01{property_for(given)}".encode()) == given
    assert given_back_of(b"") is given_back_of(f"{GIVEN_BACK}\x01a:b".encode()) is None


def note(returns: Returns, group: str, *offsets: int) -> None:
    for offset in offsets:
        returns.follow(Change(events=(GivenBack(group, "q:0", offset, 1, 5),)))


@pytest.mark.interpreted
def test_it_is_bounded_and_a_snapshot_has_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_back, "IN_QUEUE_MAX", 8)
    monkeypatch.setattr(given_back, "IN_ALL_MAX", 10)
    returns = Returns()
    note(returns, "a", *range(100))
    assert 4 <= len(returns) <= 8
    assert returns.get("a", "q:0", 99) == SentBack(1, 5)
    frozen = returns.freeze()
    note(returns, "b", *range(7))
    assert len(returns) == 7  # all of the first group went
    copy = Returns()
    copy.restore(msgpack.unpackb(b"".join(frozen)))
    assert (copy.get("a", "q:0", 99), copy.get("b", "q:0", 0)) == (SentBack(1, 5), None)
    after: list[Any] = []
    for one in (returns, copy):
        one.follow(Change(events=(TopicGone("q", ("q:0",), 1),)))
        after.append((len(one), b"".join(one.freeze())))
    assert after == [(0, msgpack.packb([]))] * 2


def test_pulling_shows_what_a_retry_was() -> None:
    rig, now = joined()
    rig.ask(SendBack("g", "m", now, "orders:0", 0, 0))
    [retry] = messages(rig, "%RETRY%g:0")
    assert retry.properties[GIVEN_BACK] == f"1:{rig.times.wall_ms()}:0:Zw==:orders:0"
    assert rig.ask(Pull("%RETRY%g:0", 0)).count == 1
